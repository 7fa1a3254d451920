package guide

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/uptrace/bun"
	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// RunUntilSignalled drains at the first signal, and stops at once at the second.
func RunUntilSignalled(ctx context.Context, processor *outbox.Processor) error {
	// snippet: signals
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- processor.Run(running) }()
	for {
		select {
		case err := <-ended:
			return err
		case <-signals:
			if running.Err() != nil {
				processor.Close() // cancels what still runs
			}
			stop() // lets consumers finish for DrainTimeout
		}
	}
	// end
}

// AwaitDatabase waits until the database can be reached.
func AwaitDatabase(ctx context.Context, db *bun.DB) error {
	// snippet: await
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return fmt.Errorf("the database cannot be reached: %w", errors.Join(context.Cause(ctx), err))
		}
	}
	// end
}

// Schedules declares the schedules of the application when it starts.
var Schedules = schedules() // immutable

func schedules() fx.Option {
	// snippet: fx-schedules
	return fx.Invoke(func(lifecycle fx.Lifecycle, db *bun.DB, scheduler *schedule.Scheduler) { // listed after fxmodule.Module
		lifecycle.Append(fx.StartHook(func(ctx context.Context) error { return ScheduleReports(ctx, db, scheduler) }))
	})
	// end
}

// snippet: wrap

// InTenant sets the tenant in a consumer's transaction and then calls the consumer.
func InTenant[T any](next func(context.Context, bun.Tx, T) error) func(context.Context, bun.Tx, T) error {
	return func(ctx context.Context, tx bun.Tx, payload T) error {
		_, err := tx.NewRaw("SELECT set_config('app.tenant', ?, true)", Tenant(ctx)).Exec(ctx) // until the commit
		if err != nil {
			return err
		}
		return next(ctx, tx, payload)
	}
}

// end
