package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
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

// hung is a projection that never returns, until the test ends.
func hung(t *testing.T, block func(tx bun.Tx)) projection.Projection {
	var inside atomic.Int64
	t.Cleanup(func() { eventually(t, "what was left behind ends", func() bool { return inside.Load() == 0 }) })
	return projection.Projection{Name: "hung", MaxAttempts: 1, Timeout: 50 * time.Millisecond,
		On: []projection.Handler{projection.On(func(_ context.Context, tx bun.Tx, _ moved) error {
			inside.Add(1)
			defer inside.Add(-1)
			block(tx)
			return nil
		})}}
}

// TestAHungProjectionIsLeftBehind has a projection ignore its timeout: it costs an
// attempt, is named in the log, and others go on.
func TestAHungProjectionIsLeftBehind(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l := newLedger(t, db)
		end := make(chan struct{})
		p := hung(t, func(tx bun.Tx) {
			<-end
			if _, err := tx.NewRaw("INSERT INTO applied VALUES ('late', 1, '')").Exec(context.Background()); err == nil {
				t.Error("a write of a projection that was left behind: got no error")
			}
		})
		t.Cleanup(func() { close(end) })
		log := &testapp.Lines{}
		r, err := projection.NewRunner(db, l.log, projection.RunnerConfig{PollInterval: 20 * time.Millisecond, Logger: log.Logger()}, p,
			balances())
		if err != nil {
			t.Fatal(err)
		}
		appended := l.append("account-1", eventlog.AnyVersion, moved{1})
		running(t, "runner", r.Run)
		if err := r.WaitFor(l.ctx, "hung", appended); !errors.Is(err, projection.ErrHalted) || !strings.Contains(err.Error(), "abandoned") {
			t.Errorf("wait for a projection that hangs: got %v, want it halted", err)
		}
		if err := r.WaitFor(l.ctx, "balances", appended); err != nil {
			t.Error(err)
		}
		l.mustFold("")
		for _, want := range []string{"ignored its timeout", "projection=hung", "stream=account-1", "position=1"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("log: got %q, want it to say %q", log, want)
			}
		}
	})
}

// TestAProjectionHungInAStatementIsLeftBehind has it wait for the database, and
// without its context.
func TestAProjectionHungInAStatementIsLeftBehind(t *testing.T) {
	t.Parallel()
	l := newLedger(t, testdb.Postgres(t))
	var idle atomic.Value
	r := l.runner(hung(t, func(tx bun.Tx) {
		var timeout string
		if err := tx.NewRaw("SHOW idle_in_transaction_session_timeout").Scan(l.ctx, &timeout); err != nil {
			t.Error(err)
		}
		idle.Store(timeout)
		_, _ = tx.NewRaw("SELECT pg_sleep(3600)").Exec(l.ctx) // it ends with its session
	}))
	l.append("account-1", eventlog.AnyVersion, moved{1})
	ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
	defer cancel()
	if _, err := r.CatchUp(ctx); err == nil || !strings.Contains(err.Error(), "abandoned") {
		t.Errorf("catch up: got %v, want a projection that was abandoned", err)
	}
	if got := idle.Load(); got != "10050ms" {
		t.Errorf("bound for a process that vanishes in its transaction: got %v, want 10050ms", got)
	}
}

// TestARetryHungInAStatementIsLeftBehind has a parked event do so that is tried again.
func TestARetryHungInAStatementIsLeftBehind(t *testing.T) {
	t.Parallel()
	l := newLedger(t, testdb.Postgres(t))
	var sleeps atomic.Bool
	p := hung(t, func(tx bun.Tx) {
		if sleeps.Load() {
			_, _ = tx.NewRaw("SELECT pg_sleep(3600)").Exec(l.ctx) // it ends with its session
		} else {
			panic("parked")
		}
	})
	p.OnError = projection.Park
	r := l.runner(p)
	l.append("account-1", eventlog.AnyVersion, moved{1})
	l.catchUp(r)
	sleeps.Store(true)
	ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
	defer cancel()
	if n, err := r.RetryParked(ctx, "hung"); n != 0 || !errors.Is(err, bus.ErrAbandoned) {
		t.Errorf("retry: got %d and %v, want a projection that was abandoned", n, err)
	}
}

// TestAHungProjectionDoesNotHoldUpTheEnd stops a runner while a projection hangs.
func TestAHungProjectionDoesNotHoldUpTheEnd(t *testing.T) {
	t.Parallel()
	l := newLedger(t, testdb.SQLite(t))
	begun, end := make(chan struct{}, 1), make(chan struct{})
	p := hung(t, func(bun.Tx) { begun <- struct{}{}; <-end })
	p.Timeout = time.Hour
	t.Cleanup(func() { close(end) })
	r := testapp.Must[*projection.Runner](t)(projection.NewRunner(l.db, l.log, projection.RunnerConfig{DrainTimeout: time.Millisecond}, p))
	l.append("account-1", eventlog.AnyVersion, moved{1})
	stop := running(t, "runner", r.Run)
	receive(t, begun)
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	receive(t, stopped)
	if n := l.count("SELECT attempts FROM event_subscriptions"); n != 0 {
		t.Errorf("attempts of an event that a stop has ended: got %d, want 0", n)
	}
}

// TestAProjectionThatEndsItsGoroutine costs an attempt, too.
func TestAProjectionThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	l := newLedger(t, testdb.SQLite(t))
	var runs atomic.Int64
	p := balances()
	p.MaxAttempts, p.OnError = 2, projection.Park
	p.On = []projection.Handler{projection.On(func(_ context.Context, _ bun.Tx, e moved) error {
		if runs.Add(1); e.Amount == 0 {
			runtime.Goexit()
		}
		return nil
	})}
	r := l.runner(p)
	running(t, "runner", r.Run)
	l.fill(1, 2)
	eventually(t, "one is parked and one applied", func() bool {
		stats, err := r.Stats(l.ctx)
		return err == nil && stats[0].Parked == 1 && stats[0].Lag == 0
	})
	if n := runs.Load(); n < 3 {
		t.Errorf("runs: got %d, want 3, two of the event that fails", n)
	}
}

// TestTooManyHungProjections begins nothing more while many are left behind.
func TestTooManyHungProjections(t *testing.T) {
	t.Parallel()
	l := newLedger(t, testdb.Postgres(t))
	end := make(chan struct{})
	var runs atomic.Int64
	p := hung(t, func(bun.Tx) { runs.Add(1); <-end })
	p.MaxAttempts, p.AttemptDelay, p.Shards = 100, time.Millisecond, 10
	r, err := projection.NewRunner(l.db, l.log, projection.RunnerConfig{Concurrency: 10, PollInterval: 20 * time.Millisecond}, p)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		l.append(fmt.Sprintf("account-%d", i), eventlog.AnyVersion, moved{1})
	}
	stop := running(t, "runner", r.Run)
	eventually(t, "many hang", func() bool { return r.Health().Err != nil })
	stop()
	if n := runs.Load(); n < 16 || n > 25 { // nine may have begun before the last of 16 was left behind
		t.Errorf("projections that hang: got %d, want 16, and those begun beside them", n)
	}
	close(end)
	eventually(t, "all have ended", func() bool { return r.Health().Err == nil })
}

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

// hanging is moved with an upcaster that calls the function of its context.
type hanging struct{}

type hangKey struct{}

func (hanging) PayloadType() string { return "account.moved" }

func (hanging) Upcasters() []bus.Upcaster {
	return []bus.Upcaster{func(ctx context.Context, text []byte) ([]byte, error) {
		ctx.Value(hangKey{}).(func())()
		return text, nil
	}}
}

// TestAnUpcasterThatHangs in a projection is left behind like its function: others go on, and Run ends.
func TestAnUpcasterThatHangs(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		newLedger(t, db).append("account-1", eventlog.AnyVersion, moved{1})
		var calls atomic.Int64
		release := make(chan struct{})
		free := sync.OnceFunc(func() { close(release) })
		now := testapp.Must[*eventlog.Types](t)(eventlog.NewTypes(eventlog.Event[opened](), eventlog.Event[hanging]()))
		a := setup{types: now}.newApp(t, db)
		p := projection.Projection{Name: "balances", Timeout: 100 * time.Millisecond,
			On: []projection.Handler{projection.On(func(context.Context, bun.Tx, hanging) error { return nil })}}
		config := projection.RunnerConfig{PollInterval: 20 * time.Millisecond, DrainTimeout: time.Second}
		r := testapp.Must[*projection.Runner](t)(projection.NewRunner(db, a.log, config, p))
		hang := func() { calls.Add(1); <-release }
		run := func(ctx context.Context) error { return r.Run(context.WithValue(ctx, hangKey{}, hang)) }
		mustEnd(t, run, func() bool { return calls.Load() > 0 }, free)
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
