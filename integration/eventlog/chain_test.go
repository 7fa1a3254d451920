package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
)

// TestAProjectionsChainMayLackALayer: a missing layer has the same effect as in a processor.
func TestAProjectionsChainMayLackALayer(t *testing.T) {
	t.Parallel()
	failed, bare := errors.New("failed"), []bus.Middleware{middleware.SkipOnReplay("p")}
	added := middleware.Default(middleware.Options{Middleware: bare})
	for name, test := range map[string]struct {
		chain []bus.Middleware
		fails error
		want  string
	}{
		"complete: an error halts":                  {added, failed, "halted, 2 attempts after 2 runs"},
		"complete: a permanent error halts":         {added, bus.Permanent(failed), "halted, 1 attempts after 1 runs"},
		"without attempts: an error counts nothing": {bare, failed, "running, 0 attempts after 4 runs"},
		"without poison: a permanent error counts":  {bare, bus.Permanent(failed), "running, 4 attempts after 4 runs"},
	} {
		t.Run(name, func(t *testing.T) {
			testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
				l := newLedger(t, db)
				l.append("account-1", eventlog.NoStream, moved{1})
				ctx, stop := context.WithTimeout(l.ctx, time.Minute)
				defer stop()
				var runs atomic.Int64
				p := projection.Projection{Name: "p", MaxAttempts: 2, AttemptDelay: time.Millisecond}
				p.On = []projection.Handler{projection.On(func(context.Context, bun.Tx, moved) error {
					if runs.Add(1) == 4 {
						stop() // the failure of this run is still stored
					}
					return test.fails
				})}
				r := testapp.Must[*projection.Runner](t)(
					projection.NewRunner(db, l.log, projection.RunnerConfig{Chain: test.chain, PollInterval: time.Millisecond}, p))
				testapp.OK(t, r.Check(ctx)) // creates the checkpoint
				ended := running(t, "runner", func(context.Context) error { return r.Run(ctx) })
				var status string
				var attempts int
				eventually(t, "halted, or run 4 times", func() bool {
					testapp.OK(t, db.NewRaw("SELECT status, attempts FROM event_subscriptions").Scan(l.ctx, &status, &attempts))
					return status == "halted" || ctx.Err() != nil
				})
				stop()
				ended()
				testapp.OK(t, db.NewRaw("SELECT status, attempts FROM event_subscriptions").Scan(l.ctx, &status, &attempts))
				if got := fmt.Sprintf("%s, %d attempts after %d runs", status, attempts, runs.Load()); got != test.want {
					t.Errorf("got %s, want %s", got, test.want)
				}
			})
		})
	}
}
