package fxmodule_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/fxmodule"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// TestFxStopLeavesTimeForLaterHooks although a projection's function outlives the stop timeout. Its function is cancelled.
func TestFxStopLeavesTimeForLaterHooks(t *testing.T) {
	t.Parallel()
	const stopTimeout = 10 * time.Second
	for name, heeds := range map[string]bool{"heeds its context": true, "ignores its context": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
				var running, stopping, closed atomic.Bool
				release := make(chan struct{})
				endless := projection.Projection{Name: "endless", Types: []string{order{}.PayloadType()}, Timeout: time.Hour,
					Batch: func(ctx context.Context, _ bun.Tx, _ []eventlog.RecordedEvent) error {
						running.Store(true)
						<-ctx.Done()
						stopping.Store(context.Cause(ctx) == bus.ErrStopping)
						if !heeds {
							<-release
						}
						return ctx.Err()
					}}
				var log *eventlog.Log
				var runner *projection.Runner
				service := fxtest.New(t, fx.StopTimeout(stopTimeout),
					fx.Provide(func(lifecycle fx.Lifecycle) *bun.DB {
						lifecycle.Append(fx.StopHook(func() { closed.Store(true) }))
						return db
					}),
					fxmodule.Module, fxmodule.Migrate(), fxmodule.EventLog(eventlog.Event[order]()), fxmodule.Projections(endless),
					fx.Supply(projection.RunnerConfig{DrainTimeout: time.Hour}), fx.Populate(&log, &runner)).RequireStart()
				testapp.OK(t, log.RunInTx(t.Context(), db, func(ctx context.Context, tx bun.Tx) error {
					return testapp.Second(log.Append(ctx, tx, "order-1", eventlog.NoStream, order{}))
				}))
				testapp.Eventually(t, "it runs", running.Load)
				ctx, cancel := context.WithTimeout(t.Context(), stopTimeout)
				defer cancel()
				err := service.Stop(ctx)
				if !stopping.Load() || !closed.Load() {
					t.Errorf("function cancelled %t, later hook ran %t, want both", stopping.Load(), closed.Load())
				}
				if !heeds && (err == nil || !strings.Contains(err.Error(), "runner of projections")) {
					t.Errorf("stop: got error %v, want one that names the runner", err)
				}
				close(release)
				testapp.Eventually(t, "the runner ends", func() bool { return !runner.Health().Ready })
			})
		})
	}
}
