package relay

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/alarm"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

// lookEvery is how often log relays poll for events if no notification arrives.
const lookEvery = 250 * time.Millisecond

// crew runs the goroutines of one Run's log relays.
type crew struct {
	*Runner
	ctx     context.Context
	alarm   *alarm.Alarm
	workers sync.WaitGroup
}

// runLogs starts work on shards that are behind, until ctx ends. Then it returns their leases.
func (r *Runner) runLogs(ctx context.Context) {
	c := &crew{Runner: r, ctx: ctx, alarm: alarm.New(2*time.Millisecond, 10*time.Millisecond, 50*time.Millisecond)}
	defer r.registry.Wakeups().Listen(func(w wakeup.Wake) {
		if w.Events {
			c.alarm.Ring(w.Expected)
		}
	})()
	retry := outage.NewRetry()
	c.alarm.Loop(ctx, lookEvery, func() {
		err := c.dispatch()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			c.outage.Failed("look for events", err)
			now := time.Now()
			c.alarm.Rearm(now, now.Add(retry.NextBackOff()))
		default:
			c.outage.Recovered()
			retry.Reset()
		}
	})
	c.workers.Wait()
	r.letGo(ctx)
}

// letGo returns the leases of all shards. It is one statement, so that an unresponsive database
// delays a stop by only one timeout.
func (r *Runner) letGo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	if err := r.store.ReturnLeases(ctx, r.db, r.checkpoints(), r.owner); err != nil {
		r.outage.Failed("return leases", err)
	}
	for _, l := range r.logs {
		for _, s := range l.shards {
			s.told = false
		}
	}
}

// checkpoints are the names of the log relays' checkpoints.
func (r *Runner) checkpoints() []string {
	return store.Each(r.logs, (*logging).checkpoint)
}

// dispatch assigns positions to events and starts work on shards that are behind. An idle poll is
// one statement, or none while all shards wait for their broker.
func (c *crew) dispatch() error {
	free := make(map[string][]*shard)
	now := time.Now()
	for _, l := range c.logs {
		for _, s := range l.shards {
			until, waits := s.waits(now)
			if waits {
				c.alarm.By(until)
			}
			if !waits && !s.busy.Load() {
				free[l.checkpoint()] = append(free[l.checkpoint()], s)
			}
		}
	}
	if len(free) == 0 {
		return nil
	}
	rows, pending, err := c.behind(free)
	if err == nil && pending {
		if err = c.number(); err == nil {
			rows, _, err = c.behind(free)
		}
	}
	for _, row := range rows {
		for _, s := range free[row.Name] {
			if s.number == row.Shard {
				c.start(s)
			}
		}
	}
	return err
}

func (c *crew) behind(free map[string][]*shard) ([]store.Subscription, bool, error) {
	ctx, cancel := context.WithTimeout(c.ctx, statementTimeout)
	defer cancel()
	var names []string
	for _, l := range c.logs {
		if name := l.checkpoint(); free[name] != nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return c.store.Behind(ctx, c.db, names)
}

// number assigns positions within a statement timeout; the next poll continues.
func (c *crew) number() error {
	turn, cancel := context.WithTimeout(c.ctx, statementTimeout)
	defer cancel()
	_, err := c.config.Log.AssignPositions(turn, c.db)
	if turn.Err() != nil && c.ctx.Err() == nil {
		c.alarm.By(time.Now())
		return nil
	}
	return err
}

// start works on a shard.
func (c *crew) start(s *shard) {
	if !s.busy.CompareAndSwap(false, true) {
		return
	}
	c.workers.Go(func() {
		defer func() {
			s.busy.Store(false)
			c.alarm.By(time.Now().Add(time.Millisecond)) // for events appended meanwhile
		}()
		ctx := context.WithoutCancel(c.ctx) // finish a started batch
		for more := true; more && c.ctx.Err() == nil; {
			var err error
			if more, err = c.step(ctx, s); err != nil {
				c.outage.Failed("relay the log", fmt.Errorf("relay: %w", err))
				s.wait(time.Second, false)
				return
			}
		}
	})
}
