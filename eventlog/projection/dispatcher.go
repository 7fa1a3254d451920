package projection

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/logaccess"
	"github.com/asyncmonolith/asyncmonolith-go/internal/logpoll"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// shard is a part of a projection.
type shard struct {
	*reader
	runner *Runner
	number int
	limit  atomic.Int64 // of the next batch; less than BatchSize after a failure
	window atomic.Int64 // positions to read; more if few events match

	busy      atomic.Bool  // a goroutine works on it
	blameless atomic.Int64 // failures in a row that are not the event's fault
	applied   atomic.Int64 // events applied
}

// is reports whether a row belongs to the shard.
func (s *shard) is(row store.Subscription) bool {
	return row.Name == s.Name && row.Version == s.Version && row.Shard == s.number
}

// dispatcher runs the goroutines of one Run.
type dispatcher struct {
	*Runner
	ctx     context.Context // of the work; a stop does not cancel it at once
	stop    <-chan struct{}
	poller  *logpoll.Poller
	slots   chan struct{} // one for each shard that may be worked on
	workers sync.WaitGroup
}

// dispatch starts work on shards that are behind, until ctx ends.
func dispatch(ctx context.Context, r *Runner) {
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	d := &dispatcher{Runner: r, ctx: work, stop: ctx.Done(), slots: make(chan struct{}, r.config.Concurrency),
		poller: logpoll.New(logpoll.Config{
			DB: r.db, Registry: logaccess.Registry(r.log), Store: r.store, Outage: r.outage, Assign: r.log.AssignPositions,
		})}
	cut := func() {
		if ctx.Err() != nil {
			cancel(bus.ErrStopping)
		}
	}
	r.cut.Store(&cut)
	defer r.cut.Store(nil)
	d.poller.Run(ctx, r.config.PollInterval, func() error { return d.poll(ctx) })
	defer time.AfterFunc(r.config.DrainTimeout, cut).Stop()
	d.workers.Wait()
}

// poll starts work on shards that are behind, even if assigning positions failed: their events have
// positions.
func (d *dispatcher) poll(ctx context.Context) error {
	rows, err := d.poller.Behind(ctx, slices.Collect(maps.Keys(d.byName)))
	for _, reader := range d.readers {
		for _, shard := range reader.shards {
			if slices.ContainsFunc(rows, shard.is) {
				d.start(shard)
			}
		}
	}
	return err
}

// start works on a shard unless it is busy. If all slots are taken, the next worker to end
// triggers another poll.
func (d *dispatcher) start(s *shard) {
	if s.busy.Load() || d.left.Load() >= maxLeft {
		return
	}
	select {
	case d.slots <- struct{}{}:
	default:
		return
	}
	s.busy.Store(true)
	d.workers.Go(func() {
		defer func() {
			s.busy.Store(false)
			<-d.slots
		}()
		d.work(s)
	})
}

// turn is how long a shard may keep its slot while others wait.
const turn = 5 * time.Second

// work applies batches until nothing is left, one fails, or its turn is over. Then it triggers
// another poll, for shards that wait for the slot and for events appended meanwhile, unless it did
// nothing.
func (d *dispatcher) work(s *shard) {
	for begun, worked := time.Now(), false; ; worked = true {
		if stopped(d.stop) {
			return
		}
		more, err := s.step(d.ctx, d.stop)
		if _, failed := errors.AsType[*failure](err); err != nil && !failed {
			d.outage.Failed("apply events", err)
			return
		}
		if err != nil || !more || time.Since(begun) > turn {
			if worked || more {
				d.poller.By(time.Now())
			}
			return
		}
	}
}
