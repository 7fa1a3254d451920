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

// Rest is what a process of ours costs while it has nothing to do: statements a second, and the shares of one
// processor in percent that it and the server take.
type Rest struct{ Statements, Client, Server float64 }

// Idle measures a process with 20 consumers and 20 schedules, or with so many tenants.
func (b *Bench) Idle(ctx context.Context, d time.Duration, tenants int) (rest Rest, err error) {
	err = b.fresh(ctx, func(r *run) error {
		if err := r.with(contender.Idle(tenants, nil), contender.Work{}, func(contender.System) error { return nil }); err != nil {
			return err
		}
		process, err := r.spawn(1, child.Request{Idle: true, Tenants: tenants, DSN: r.dsn})
		if err != nil {
			return err
		}
		var server time.Duration
		err = process.each((*child.Process).Go)
		if err == nil {
			err = r.wait(idleWarmUp)
		}
		if err == nil {
			server = r.server.CPU()
			err = errors.Join(process.each((*child.Process).Mark), r.wait(d))
			server = r.server.CPU() - server
		}
		found, finished := process.finish()
		if err = errors.Join(err, finished); err != nil {
			return err
		}
		if found.CPU == 0 || found.Statements == 0 {
			return errors.New("the idle process used nothing at all: it was not measured")
		}
		rest = Rest{
			Statements: float64(found.Statements) / d.Seconds(),
			Client:     100 * found.CPU.Seconds() / d.Seconds(), Server: 100 * server.Seconds() / d.Seconds(),
		}
		return nil
	})
	return rest, err
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
