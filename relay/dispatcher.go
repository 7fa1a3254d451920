package relay

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/alarm"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

// lookEvery is how often log forwarders poll for events if no notification arrives.
const lookEvery = 250 * time.Millisecond

// dispatcher runs the goroutines of one Run.
type dispatcher struct {
	*services
	forwarders []*logForwarder
	ctx        context.Context
	alarm      *alarm.Alarm
	workers    sync.WaitGroup
}

func newDispatcher(ctx context.Context, r *Runner) *dispatcher {
	return &dispatcher{
		services: &r.services, forwarders: r.forwarders, ctx: ctx,
		alarm: alarm.New(2*time.Millisecond, 10*time.Millisecond, 50*time.Millisecond),
	}
}

// run starts work on shards that are behind, until the context ends. Then it returns their leases.
func (d *dispatcher) run() {
	defer access.Wakeups(d.registry).Listen(func(w wakeup.Wake) {
		if w.Events {
			d.alarm.Ring(w.Expected)
		}
	})()
	retry := outage.NewRetry()
	d.alarm.Loop(d.ctx, lookEvery, func() {
		err := d.dispatch()
		switch {
		case d.ctx.Err() != nil:
			return
		case err != nil:
			d.outage.Failed("look for events", err)
			now := time.Now()
			d.alarm.Rearm(now, now.Add(retry.NextBackOff()))
		default:
			d.outage.Recovered()
			retry.Reset()
		}
	})
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
				d.alarm.By(until)
			}
			if !waits && !s.busy.Load() {
				free[l.checkpoint()] = append(free[l.checkpoint()], s)
			}
		}
	}
	if len(free) == 0 {
		return nil
	}
	rows, pending, err := d.behind(free)
	if err == nil && pending {
		if err = d.assign(); err == nil {
			rows, _, err = d.behind(free)
		}
	}
	for _, row := range rows {
		for _, s := range free[row.Name] {
			if s.number == row.Shard {
				d.start(s)
			}
		}
	}
	return err
}

func (d *dispatcher) behind(free map[string][]*shard) ([]store.Subscription, bool, error) {
	ctx, cancel := context.WithTimeout(d.ctx, statementTimeout)
	defer cancel()
	var names []string
	for _, l := range d.forwarders {
		if name := l.checkpoint(); free[name] != nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return d.store.Readers.Behind(ctx, d.db, names)
}

// assign assigns positions within a statement timeout; the next poll continues.
func (d *dispatcher) assign() error {
	turn, cancel := context.WithTimeout(d.ctx, statementTimeout)
	defer cancel()
	_, err := d.log.AssignPositions(turn, d.db)
	if turn.Err() != nil && d.ctx.Err() == nil {
		d.alarm.By(time.Now())
		return nil
	}
	return err
}

// start works on a shard.
func (d *dispatcher) start(s *shard) {
	if !s.busy.CompareAndSwap(false, true) {
		return
	}
	d.workers.Go(func() {
		defer func() {
			s.busy.Store(false)
			d.alarm.By(time.Now().Add(time.Millisecond)) // for events appended meanwhile
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
