package relay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/logpoll"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// lookEvery is how often log forwarders poll for events if no notification arrives.
const lookEvery = 250 * time.Millisecond

// dispatcher runs the goroutines of one Run.
type dispatcher struct {
	*services
	forwarders []*logForwarder
	ctx        context.Context
	poller     *logpoll.Poller
	workers    sync.WaitGroup
}

func newDispatcher(ctx context.Context, r *Runner) *dispatcher {
	return &dispatcher{services: &r.services, forwarders: r.forwarders, ctx: ctx, poller: logpoll.New(logpoll.Config{
		DB: r.db, Registry: r.registry, Store: r.store, Outage: r.outage, Assign: r.log.AssignPositions,
	})}
}

// run starts work on shards that are behind, until the context ends. Then it returns their leases.
func (d *dispatcher) run() {
	d.poller.Run(d.ctx, lookEvery, d.dispatch)
	d.workers.Wait()
	d.returnLeases()
}

// returnLeases returns the leases of all shards. It is one statement, so that an unresponsive
// database delays a stop by only one timeout.
func (d *dispatcher) returnLeases() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), statementTimeout)
	defer cancel()
	if err := d.store.Readers.ReturnLeases(ctx, d.db, store.Each(d.forwarders, (*logForwarder).checkpoint), d.owner); err != nil {
		d.outage.Failed("return leases", err)
	}
	for _, l := range d.forwarders {
		for _, s := range l.shards {
			s.known = false
		}
	}
}

// dispatch assigns positions to events and starts work on shards that are behind. An idle poll is
// one statement, or none while all shards wait for their broker.
func (d *dispatcher) dispatch() error {
	free := make(map[string][]*shard)
	now := time.Now()
	for _, l := range d.forwarders {
		for _, s := range l.shards {
			until, waits := s.waits(now)
			if waits {
				d.poller.By(until)
			}
			if !waits && !s.busy.Load() {
				free[l.checkpoint()] = append(free[l.checkpoint()], s)
			}
		}
	}
	if len(free) == 0 {
		return nil
	}
	rows, err := d.poller.Behind(d.ctx, slices.Sorted(maps.Keys(free)))
	for _, row := range rows {
		for _, s := range free[row.Name] {
			if s.number == row.Shard {
				d.start(s)
			}
		}
	}
	return err
}

func (d *dispatcher) start(s *shard) {
	if !s.busy.CompareAndSwap(false, true) {
		return
	}
	d.workers.Go(func() {
		defer func() {
			s.busy.Store(false)
			d.poller.By(time.Now().Add(time.Millisecond)) // for events appended meanwhile
		}()
		ctx := context.WithoutCancel(d.ctx) // finish a started batch
		for more := true; more && d.ctx.Err() == nil; {
			var err error
			if more, err = s.step(ctx); err != nil {
				d.outage.Failed("relay the log", fmt.Errorf("relay: %w", err))
				s.wait(time.Second, false)
				return
			}
		}
	})
}
