package eventlog_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// mustEnd runs a part, waits until inside, stops it, and wants Run to return within 30 s. Then it lets go what hangs.
func mustEnd(t *testing.T, run func(context.Context) error, inside func() bool, free func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	eventually(t, "the function is called", inside)
	cancel()
	select {
	case <-ended:
		free()
	case <-time.After(30 * time.Second):
		t.Error("Run has not returned 30 s after its context ended")
		free()
		<-ended
	}
}

// TestAnUpcasterThatHangs in a projection is left behind like its function: others go on, and Run ends.
func TestAnUpcasterThatHangs(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		newLedger(t, db).append("account-1", eventlog.AnyVersion, moved{1})
		var calls atomic.Int64
		release := make(chan struct{})
		free := sync.OnceFunc(func() { close(release) })
		hangs := eventlog.Upcaster(1, func(_ context.Context, text []byte) ([]byte, error) { calls.Add(1); <-release; return text, nil })
		now := testapp.Must[*eventlog.Types](t)(eventlog.NewTypes(eventlog.Event[opened](), eventlog.Event[moved](eventlog.Schema(2), hangs)))
		a := setup{types: now}.newApp(t, db)
		p := balances()
		p.Timeout = 100 * time.Millisecond
		config := projection.RunnerConfig{PollInterval: 20 * time.Millisecond, DrainTimeout: time.Second}
		r := testapp.Must[*projection.Runner](t)(projection.NewRunner(db, a.log, config, p))
		mustEnd(t, r.Run, func() bool { return calls.Load() > 0 }, free)
	})
}

// TestTelemetryThatHangs in a projection does not keep Run from ending.
func TestTelemetryThatHangs(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l := newLedger(t, db)
		l.append("account-1", eventlog.AnyVersion, moved{1})
		var calls atomic.Int64
		release := make(chan struct{})
		free := sync.OnceFunc(func() { close(release) })
		r, err := projection.NewRunner(db, l.log, projection.RunnerConfig{PollInterval: 20 * time.Millisecond, DrainTimeout: time.Second,
			Telemetry: func(next bus.ProduceFunc) bus.ProduceFunc {
				return func(ctx context.Context, b *bus.Batch) error { calls.Add(1); <-release; return next(ctx, b) }
			}}, balances())
		if err != nil {
			t.Fatal(err)
		}
		mustEnd(t, r.Run, func() bool { return calls.Load() > 0 }, free)
	})
}

// TestALayerThatHangs in a projection's chain does not keep Run from ending.
func TestALayerThatHangs(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l := newLedger(t, db)
		l.append("account-1", eventlog.AnyVersion, moved{1})
		var calls atomic.Int64
		release := make(chan struct{})
		free := sync.OnceFunc(func() { close(release) })
		p := balances()
		p.Timeout = 100 * time.Millisecond
		r, err := projection.NewRunner(db, l.log, projection.RunnerConfig{PollInterval: 20 * time.Millisecond, DrainTimeout: time.Second,
			Chain: []bus.Middleware{func(next bus.Handler) bus.Handler {
				return func(ctx context.Context, m *bus.Message) error { calls.Add(1); <-release; return next(ctx, m) }
			}}}, p)
		if err != nil {
			t.Fatal(err)
		}
		mustEnd(t, r.Run, func() bool { return calls.Load() > 0 }, free)
	})
}
