package measure

import (
	"context"
	"errors"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/child"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
)

// idleWarmUp is how long a process may take to come to rest.
const idleWarmUp = 3 * time.Second

// Idle measures what a process of ours with 20 consumers and 20 schedules costs
// while it has nothing to do: statements a second, and the share of one
// processor in percent.
func (b *Bench) Idle(ctx context.Context, d time.Duration) (statements, cpu float64, err error) {
	err = b.fresh(ctx, func(r *run) error {
		if err := r.with(contender.Idle(nil), contender.Work{}, func(contender.System) error { return nil }); err != nil {
			return err
		}
		process, err := r.spawn(1, child.Request{Idle: true, DSN: r.dsn})
		if err != nil {
			return err
		}
		err = process.each((*child.Process).Go)
		if err == nil {
			err = r.wait(idleWarmUp)
		}
		if err == nil {
			err = errors.Join(process.each((*child.Process).Mark), r.wait(d))
		}
		found, finished := process.finish()
		if err = errors.Join(err, finished); err != nil {
			return err
		}
		if found.CPU == 0 || found.Statements == 0 {
			return errors.New("the idle process used nothing at all: it was not measured")
		}
		statements = float64(found.Statements) / d.Seconds()
		cpu = 100 * found.CPU.Seconds() / d.Seconds()
		return nil
	})
	return statements, cpu, err
}

func (r *run) wait(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	case <-timer.C:
		return nil
	}
}
