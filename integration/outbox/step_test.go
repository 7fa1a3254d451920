package outbox_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

func newProcessor(a *app, config outbox.ProcessorConfig) *outbox.Processor {
	a.Helper()
	p, err := outbox.NewProcessor(a.DB, a.Registry, config)
	if err != nil {
		a.Fatalf("processor: %v", err)
	}
	return p
}

// steps runs single messages until there is none, and returns how many.
func steps(ctx context.Context, a *app, p *outbox.Processor, consumers ...string) (n int) {
	a.Helper()
	for {
		ran, err := p.ProcessNext(ctx, consumers...)
		if err != nil {
			a.Fatalf("step %d: %v", n+1, err)
		}
		if !ran {
			return n
		}
		if n++; n > 100 {
			a.Fatal("steps: got more than 100, want the messages to be settled")
		}
	}
}

func TestStepRunsOneMessage(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var ran []string
		note := func(_ context.Context, o order) error { ran = append(ran, o.ID); return nil }
		a := testapp.New(t, db, bus.Consume("a", note), bus.Consume("b", note, bus.Aliases("former")))
		p := newProcessor(a, testapp.Fast())
		a.Produce(order{ID: "1"})
		if n := steps(t.Context(), a, p, "former"); n != 1 || len(a.Pending()) != 1 {
			t.Errorf("steps of one consumer, by a former name: got %d, left %+v, want one of two", n, a.Pending())
		}
		if ran, err := p.ProcessNext(t.Context()); !ran || err != nil {
			t.Errorf("step: got %t, %v, want the other to run", ran, err)
		}
		if ran, err := p.ProcessNext(t.Context()); ran || err != nil {
			t.Errorf("step with nothing to do: got %t, %v, want neither", ran, err)
		}
		if !slices.Equal(ran, []string{"1", "1"}) || !a.Empty() {
			t.Errorf("ran %v, left %+v, want both and nothing", ran, a.Pending())
		}
		if s := p.Stats(); s.Claimed != 2 || s.Running != 0 {
			t.Errorf("stats: got %+v, want two claimed", s)
		}
	})
}

func TestStepSaysWhatItCannotDo(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	registry := testapp.Must[*bus.Registry](t)(bus.NewRegistry(bus.Consume("c", func(context.Context, order) error { return nil })))
	a := &app{T: t, DB: db, Registry: registry}
	p := newProcessor(a, testapp.Fast())
	if _, err := p.ProcessNext(t.Context()); !errors.Is(err, outbox.ErrSchemaOutdated) {
		t.Errorf("without tables: got %v, want ErrSchemaOutdated", err)
	}
	if _, err := p.ProcessNext(t.Context(), "nobody"); !errors.Is(err, bus.ErrNoConsumer) || !strings.Contains(err.Error(), `"nobody"`) {
		t.Errorf("a consumer that is not registered: got %v, want ErrNoConsumer with its name", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.ProcessNext(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: got %v, want its error", err)
	}
	_ = db.Close()
	if _, err := p.ProcessNext(t.Context()); err == nil {
		t.Error("a database that is closed: got no error")
	}
}

// TestStepLimitsItsStatements: no lost connection holds ProcessNext up for long.
func TestStepLimitsItsStatements(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var mu sync.Mutex
		var unlimited []string
		db = db.WithQueryHook(testapp.QueryHook(func(ctx context.Context, query string) {
			mu.Lock()
			defer mu.Unlock()
			// Bun's own statements have their limit elsewhere.
			if _, limited := ctx.Deadline(); !limited && query != "BEGIN" && query != "COMMIT" {
				unlimited = append(unlimited, query)
			}
		}))
		a := testapp.New(t, db, testapp.Consumed("plain"), testapp.Consumed("keyed", bus.Ordered(bus.BlockKey)),
			testapp.Consumed("limited", bus.GlobalConcurrency(1)))
		a.Produce(order{ID: "1"}, outbox.OrderingKey("k"))
		p := newProcessor(a, testapp.Fast())
		unlimited = nil
		if n := steps(t.Context(), a, p); n != 3 || len(unlimited) > 0 {
			t.Errorf("got %d messages and statements without a time limit: %q, want 3 and none", n, unlimited)
		}
	})
}

func TestStepGivesBackWhatIsCancelled(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var cancel context.CancelFunc
		var cause error
		stop := func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		}
		a := testapp.New(t, db, bus.Consume("plain", func(ctx context.Context, _ order) error { return stop(ctx) }),
			outbox.ConsumeTx("tx", func(ctx context.Context, _ bun.Tx, _ order) error { return stop(ctx) }, bus.Timeout(3*time.Second)))
		a.Produce(order{ID: "1"})
		for _, consumer := range []string{"plain", "tx"} {
			ctx, stop := context.WithCancel(t.Context())
			cancel = stop
			if ran, err := newProcessor(a, testapp.Fast()).ProcessNext(ctx, consumer); !ran || err != nil {
				t.Errorf("%s: got %t, %v, want it to run", consumer, ran, err)
			}
			stop()
			if cause != bus.ErrStopping {
				t.Errorf("%s: got the cause %v, want ErrStopping", consumer, cause)
			}
		}
		for _, m := range a.Pending() {
			if m.Attempts != 0 || m.Crashes != 0 {
				t.Errorf("%s: got %d attempts and %d crashes, want none", m.ConsumerType, m.Attempts, m.Crashes)
			}
		}
		if n := a.Count("SELECT count(*) FROM message_claims"); n != 0 || len(a.Pending()) != 2 {
			t.Errorf("got %d claims and %d messages left, want none and both", n, len(a.Pending()))
		}
	})
}

func TestStepLeavesNoClaimBehind(t *testing.T) {
	t.Parallel()
	t.Run("when a layer panics", func(t *testing.T) {
		t.Parallel()
		a := testapp.New(t, testdb.SQLite(t), bus.Consume("c", func(context.Context, order) error { return nil }))
		a.Produce(order{ID: "1"})
		config := testapp.Fast()
		config.Middleware = []bus.Middleware{func(bus.Handler) bus.Handler {
			return func(context.Context, *bus.Message) error { panic("no luck") }
		}}
		if ran, err := newProcessor(a, config).ProcessNext(t.Context()); !ran || err != nil {
			t.Errorf("got %t, %v, want it to run", ran, err)
		}
		wantPendingUnclaimed(a)
	})
	t.Run("when a layer ends the goroutine", func(t *testing.T) {
		t.Parallel()
		a := testapp.New(t, testdb.SQLite(t), bus.Consume("c", func(context.Context, order) error { return nil }))
		a.Produce(order{ID: "1"})
		config := testapp.Fast()
		config.Middleware = []bus.Middleware{func(bus.Handler) bus.Handler {
			return func(context.Context, *bus.Message) error { runtime.Goexit(); return nil }
		}}
		p, done := newProcessor(a, config), make(chan struct{})
		go func() {
			defer close(done)
			_, _ = p.ProcessNext(context.WithoutCancel(t.Context()))
			t.Error("step returned, want its goroutine to end")
		}()
		<-done
		wantPendingUnclaimed(a)
	})
	t.Run("when the consumer does", func(t *testing.T) {
		t.Parallel()
		a := testapp.New(t, testdb.SQLite(t), bus.Consume("c", func(context.Context, order) error { runtime.Goexit(); return nil }))
		a.Produce(order{ID: "1"})
		if ran, err := newProcessor(a, testapp.Fast()).ProcessNext(t.Context()); !ran || err != nil {
			t.Errorf("got %t, %v, want it to run", ran, err)
		}
		if m := wantPendingUnclaimed(a); m.Attempts != 1 {
			t.Errorf("attempts: got %d, want 1", m.Attempts)
		}
	})
}

func wantPendingUnclaimed(a *app) testapp.Row {
	a.Helper()
	rows := a.Pending()
	if n := a.Count("SELECT count(*) FROM message_claims"); n != 0 || len(rows) != 1 {
		a.Fatalf("got %d claims and messages %+v, want no claim and one message", n, rows)
	}
	return rows[0]
}

func TestStepRenewsItsLease(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		a := newApp(bus.Consume("slow", func(ctx context.Context, _ order) error {
			select {
			case <-time.After(5 * time.Minute):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}, bus.Timeout(10*time.Minute)))
		a.ProduceAt(ctx, order{ID: "1"})
		if n := steps(ctx, a, newProcessor(a, outbox.ProcessorConfig{})); n != 1 || !a.Empty() {
			t.Errorf("got %d runs, left %+v, want one run that outlives ten leases", n, a.Pending())
		}
	})
}

func TestStepAbandonsAHandlerThatIgnoresItsTimeout(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		release := make(chan struct{})
		a := newApp(bus.Consume("deaf", func(context.Context, order) error { <-release; return nil },
			bus.Timeout(3*time.Second), bus.Backoff(middleware.Constant(time.Hour))))
		a.ProduceAt(ctx, order{ID: "1"})
		start := time.Now()
		if n := steps(ctx, a, newProcessor(a, outbox.ProcessorConfig{})); n != 1 {
			t.Errorf("got %d runs, want 1", n)
		}
		if took := time.Since(start); took < 8*time.Second || took > 9*time.Second {
			t.Errorf("took %s, want timeout 3s + grace 5s", took)
		}
		if m := wantPendingUnclaimed(a); m.Attempts != 1 || !strings.Contains(m.Errors, bus.ErrAbandoned.Error()) {
			t.Errorf("message: got %+v, want an attempt that was abandoned", m)
		}
		close(release)
		synctest.Wait()
	})
}

func TestProcessNextRecoversClaimsOfLostOwners(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var crashes []int
		a := newApp(bus.Consume("c", func(ctx context.Context, _ order) error {
			m, _ := bus.MessageFromContext(ctx)
			crashes = append(crashes, m.CrashCount)
			return nil
		}))
		p := newProcessor(a, outbox.ProcessorConfig{})
		a.ProduceAt(ctx, order{ID: "1"})
		vanish(ctx, a, 30*time.Second, false)
		if n := steps(ctx, a, p); n != 0 {
			t.Errorf("while the lease lasts: got %d runs, want none", n)
		}
		<-time.After(31 * time.Second)
		if n := steps(ctx, a, p); n != 0 {
			t.Errorf("right after the lease, which its owner may renew late: got %d runs, want none", n)
		}
		<-time.After(10 * time.Second)
		a.ProduceAt(ctx, order{ID: "2"})
		if n := steps(ctx, a, p); n != 2 || !slices.Equal(crashes, []int{1, 0}) {
			t.Errorf("got %d runs that saw crashes %v, want the crashed one first", n, crashes)
		}
	})
}

// One step at a time runs what has crashed: of two, both blamed alone, one is innocent.
func TestStepsBlameNoNeighbour(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		in, out := make(chan string, 2), make(chan struct{})
		a := testapp.New(t, db, bus.Consume("c", func(_ context.Context, o order) error {
			in <- o.ID
			<-out
			return nil
		}))
		a.Produce(order{ID: "killer"})
		a.Produce(order{ID: "innocent"})
		a.Exec("UPDATE consumer_messages SET crashes = 2")
		p := newProcessor(a, outbox.ProcessorConfig{})
		done := make(chan error, 1)
		go func() { _, err := p.ProcessNext(t.Context()); done <- err }()
		<-in
		beside := make(chan bool, 1)
		go func() { ran, err := p.ProcessNext(t.Context()); beside <- ran || err != nil }()
		select {
		case <-in:
			beside <- true
		case bad := <-beside:
			beside <- bad
		}
		close(out)
		if <-beside {
			t.Error("a step beside it: got true, want none")
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := steps(t.Context(), a, p); n != 1 {
			t.Errorf("once it is over: got %d runs, want 1", n)
		}
	})
}

func TestStepRunsAKillerSolo(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var solo []int
		release := make(chan struct{})
		var a *app
		a = newApp(bus.Consume("killer", func(context.Context, order) error {
			solo = append(solo, a.Count("SELECT count(*) FROM message_claims WHERE solo"))
			return nil
		}), bus.Consume("busy", func(context.Context, refund) error { <-release; return nil }))
		a.ProduceAt(ctx, order{ID: "1"})
		a.Exec("UPDATE consumer_messages SET crashes = 2")
		if n := steps(ctx, a, newProcessor(a, outbox.ProcessorConfig{})); n != 1 || !slices.Equal(solo, []int{1}) {
			t.Errorf("got %d runs under solo claims %v, want one", n, solo)
		}
		// While Run has others in flight, a killer is left to Run.
		a.ProduceAt(ctx, refund{ID: "2"})
		r := a.StartWith(ctx, outbox.ProcessorConfig{})
		testapp.Sooner(t, "Run is busy", func() bool { return r.Stats().Running == 1 })
		a.ProduceAt(ctx, order{ID: "3"}, outbox.Delay(time.Second))
		a.Exec("UPDATE consumer_messages SET crashes = 2, available_after = available_after - 1000000 WHERE consumer_type = 'killer'")
		if ran, err := r.ProcessNext(ctx); ran || err != nil {
			t.Errorf("step while Run is busy: got %t, %v, want nothing to run", ran, err)
		}
		close(release)
		testapp.Sooner(t, "Run has run it", a.Empty)
		r.MustStop()
		if !slices.Equal(solo, []int{1, 1}) {
			t.Errorf("got runs under solo claims %v, want two", solo)
		}
	})
}

func TestStepDoesNotSettleWhatItHasLost(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var a *app
		a = testapp.New(t, db, bus.Consume("c", func(context.Context, order) error {
			a.Exec("DELETE FROM message_claims")
			return nil
		}))
		a.Produce(order{ID: "1"})
		p := newProcessor(a, testapp.Fast())
		if ran, err := p.ProcessNext(t.Context()); !ran || err != nil {
			t.Errorf("got %t, %v, want it to run", ran, err)
		}
		wantPendingUnclaimed(a)
		if s := p.Stats(); s.Fenced != 1 {
			t.Errorf("stats: got %+v, want one result fenced", s)
		}
	})
}

func TestStepLeavesWhatOthersHaveLocked(t *testing.T) {
	t.Parallel()
	a := testapp.New(t, testdb.Postgres(t), bus.Consume("c", func(context.Context, order) error { return nil }))
	a.Produce(order{ID: "1"})
	tx := testapp.Must[bun.Tx](t)(a.DB.BeginTx(t.Context(), nil))
	testapp.OK(t, testapp.Second(tx.NewRaw("SELECT 1 FROM consumer_messages FOR UPDATE").Exec(t.Context())))
	p := newProcessor(a, testapp.Fast())
	if ran, err := p.ProcessNext(t.Context()); ran || err != nil {
		t.Errorf("step while the row is locked: got %t, %v, want neither", ran, err)
	}
	testapp.OK(t, tx.Rollback())
	if n := steps(t.Context(), a, p); n != 1 {
		t.Errorf("steps afterwards: got %d, want 1", n)
	}
}

// TestStepRunsWhatIsBesideLockedMessages: an open transaction locks the oldest message, which is another consumer's,
// as one does that has replaced it.
// Promise: held-up
func TestStepRunsWhatIsBesideLockedMessages(t *testing.T) {
	t.Parallel()
	const prioritized, batched, crashed = "prioritized", "batched", "crashed"
	options := map[string][]bus.ConsumerOption{"ordered": {bus.Ordered(bus.BlockKey)}, "rated": {bus.RateLimit(1, time.Hour, 1)},
		prioritized: {bus.Prioritized(time.Hour)}}
	test := func(t *testing.T, db *bun.DB, locked, beside string) {
		var runs atomic.Int64
		first := bus.Consume("locked", func(context.Context, order) error { return nil }, options[locked]...)
		if locked == batched {
			first = bus.ConsumeBatch("locked", func(context.Context, []order) error { return nil })
		}
		second := bus.Consume("beside", func(context.Context, refund) error { runs.Add(1); return nil }, options[beside]...)
		if beside == batched {
			second = bus.ConsumeBatch("beside", func(context.Context, []refund) error { runs.Add(1); return nil })
		}
		a := testapp.New(t, db, first, second)
		a.Produce(order{ID: "1"})
		id := a.Pending()[0].ID
		a.Produce(refund{ID: "2"}, outbox.OrderingKey("customer"))
		if locked == crashed {
			a.Exec("UPDATE consumer_messages SET crashes = CASE consumer_type WHEN 'locked' THEN 2 ELSE 1 END")
		}
		tx := testapp.Must[bun.Tx](t)(db.BeginTx(t.Context(), nil))
		defer tx.Rollback() //nolint:errcheck // it only holds
		testapp.OK(t, testapp.Second(tx.NewRaw("SELECT 1 FROM consumer_messages WHERE id = ? FOR UPDATE", id).Exec(t.Context())))
		p := newProcessor(a, testapp.Fast())
		if n := steps(t.Context(), a, p); n != 1 || runs.Load() != 1 {
			t.Errorf("beside the lock: got %d steps and %d runs, want one", n, runs.Load())
		}
		testapp.OK(t, tx.Rollback())
		if n := steps(t.Context(), a, p); n != 1 || !a.Empty() {
			t.Errorf("without the lock: got %d steps, left %+v, want one and nothing", n, a.Pending())
		}
	}
	for _, kinds := range [][2]string{{"plain", "plain"}, {"plain", "ordered"}, {"plain", batched}, {"plain", "rated"}, {"plain", prioritized},
		{batched, "plain"}, {"rated", "plain"}, {"rated", "ordered"}, {prioritized, batched}, {crashed, "plain"}, {crashed, "ordered"}} {
		t.Run(strings.Join(kinds[:], " and "), func(t *testing.T) {
			t.Parallel()
			t.Run("postgres", func(t *testing.T) { t.Parallel(); test(t, testdb.Postgres(t), kinds[0], kinds[1]) })
			if !slices.Contains(kinds[:], prioritized) { // MariaDB has none
				t.Run("mariadb", func(t *testing.T) { t.Parallel(); test(t, testdb.MariaDB(t), kinds[0], kinds[1]) })
			}
		})
	}
}
