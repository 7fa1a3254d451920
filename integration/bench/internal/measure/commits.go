package measure

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
)

// Commits measures how many transactions a second so many producers commit, each
// with one message and one after the other. Nothing is consumed.
func (b *Bench) Commits(ctx context.Context, c contender.Contender, producers int, d time.Duration) (rate float64, err error) {
	err = b.fresh(ctx, func(r *run) error {
		return r.with(c, contender.Work{}, func(system contender.System) error {
			rate, err = r.commits(system, producers, d)
			return err
		})
	})
	return rate, err
}

func (r *run) commits(system contender.System, producers int, d time.Duration) (rate float64, err error) {
	ctx, stop := context.WithTimeout(r.ctx, d)
	defer stop()
	payload := contender.Signups(0, 1, 0)[0]
	var committed atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for range producers {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := system.ProduceOne(r.ctx, payload); err != nil {
					r.fail(err)
					return
				}
				committed.Add(1)
			}
		})
	}
	all.Wait()
	rate = float64(committed.Load()) / time.Since(start).Seconds()
	if cause := context.Cause(r.ctx); cause != nil {
		return 0, cause
	}
	if rate == 0 {
		return 0, errors.New("nothing was committed")
	}
	return rate, nil
}
