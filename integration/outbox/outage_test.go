package outbox_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// breaker fails every statement of a database handle while it is open, or every
// one that writes while it is read-only.
// It answers late while it is slow.
type breaker struct {
	open, readOnly, slow atomic.Bool
	prepared             testdb.Prepared
}

var errOutage = errors.New("outage")

func (b *breaker) BeforeQuery(ctx context.Context, event *bun.QueryEvent) context.Context {
	text := b.prepared.Text(event.Query)
	writes := !strings.HasPrefix(strings.TrimSpace(text), "SELECT") && !strings.HasPrefix(text, "PREPARE")
	if b.slow.Load() {
		<-time.After(3 * time.Second)
	}
	if b.open.Load() || b.readOnly.Load() && writes {
		ctx, cancel := context.WithCancelCause(ctx)
		cancel(errOutage)
		return ctx
	}
	return ctx
}

func (b *breaker) AfterQuery(context.Context, *bun.QueryEvent) {}

// breakable gives the application's processor, but not the test, a handle that
// can be broken.
func breakable(a *app) (*app, *breaker) {
	b := new(breaker)
	broken := *a
	broken.DB = a.DB.WithQueryHook(b)
	return &broken, b
}

func TestShortOutageCostsNothing(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var runs atomic.Int64
		finish := make(chan struct{})
		a := newApp(bus.Consume("c", func(ctx context.Context, _ order) error {
			runs.Add(1)
			select {
			case <-finish:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, bus.Timeout(time.Hour)))
		a.ProduceAt(ctx, order{ID: "1"})
		processorSide, breaker := breakable(a)
		r := processorSide.StartWith(ctx, outbox.ProcessorConfig{})
		testapp.Sooner(t, "the consumer runs", func() bool { return runs.Load() == 1 })
		breaker.open.Store(true)
		<-time.After(15 * time.Second) // half a lease
		close(finish)
		<-time.After(2 * time.Second)
		if health := r.Health(); health.Ready || health.Err == nil {
			t.Errorf("health during the outage: got %+v, want not ready and the error", health)
		}
		breaker.open.Store(false)
		testapp.Sooner(t, "the result is settled", a.Empty)
		testapp.Sooner(t, "health recovers", func() bool { return r.Health().Ready })
		r.MustStop()
		if got := runs.Load(); got != 1 {
			t.Errorf("runs: got %d, want 1", got)
		}
	})
}

// TestAnOutageDuringAStepDoesNotCount: the only attempt of a message is not used up, and the result that the step has is stored
// once the database answers again.
// Promise: outage
func TestAnOutageDuringAStepDoesNotCount(t *testing.T) {
	for name, outage := range map[string]time.Duration{"shorter than the run": 8 * time.Second, "longer than the run": 22 * time.Second} {
		t.Run(name, func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				var charges atomic.Int64
				var breaker *breaker
				a := newApp(bus.Consume("c", func(ctx context.Context, _ order) error {
					_, err := outbox.Step(ctx, "charge", func(context.Context) (int64, error) {
						if charges.Add(1) == 1 {
							breaker.open.Store(true)
							time.AfterFunc(outage, func() { breaker.open.Store(false) })
						}
						return charges.Load(), nil
					})
					return err
				}, bus.MaxAttempts(1)))
				a.ProduceAt(ctx, order{ID: "1"})
				var processorSide *app
				processorSide, breaker = breakable(a)
				r := processorSide.StartWith(ctx, outbox.ProcessorConfig{})
				testapp.Sooner(t, "the message is gone", a.Empty)
				if n := len(a.Poisoned()); n != 0 {
					t.Errorf("poisoned messages: got %d, want none", n)
				}
				if n := charges.Load(); outage < 10*time.Second && n != 1 {
					t.Errorf("calls of the step: got %d, want 1", n)
				}
				r.MustStop()
			})
		})
	}
}

// Promise: lease-end
func TestConsumersAreCancelledBeforeTheirLeaseRunsOut(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var starts, cancels testapp.Moments
		var crashes atomic.Int64
		a := newApp(bus.Consume("c", func(ctx context.Context, _ order) error {
			m, _ := bus.MessageFromContext(ctx)
			crashes.Add(int64(m.CrashCount))
			starts.Add()
			if starts.Len() > 1 {
				return nil
			}
			<-ctx.Done()
			cancels.Add()
			if cause := context.Cause(ctx); cause != bus.ErrLeaseLost {
				t.Errorf("cause: got %v, want ErrLeaseLost", cause)
			}
			return ctx.Err()
		}, bus.Timeout(time.Hour)))
		a.ProduceAt(ctx, order{ID: "1"})
		processorSide, breaker := breakable(a)
		r := processorSide.StartWith(ctx, outbox.ProcessorConfig{})
		testapp.Sooner(t, "the consumer runs", func() bool { return starts.Len() == 1 })
		breaker.open.Store(true)
		testapp.Sooner(t, "the consumer is cancelled", func() bool { return cancels.Len() == 1 })
		if ran := cancels.At(0).Sub(starts.At(0)); ran < 15*time.Second || ran >= 30*time.Second {
			t.Errorf("cancelled after %s, want before the lease of 30s is over, but not long before", ran)
		}
		<-time.After(time.Minute) // the outage outlasts the lease
		breaker.open.Store(false)
		testapp.Sooner(t, "the message is done", a.Empty)
		r.MustStop()
		if crashes.Load() != 0 || starts.Len() != 2 {
			t.Errorf("got %d runs and %d crashes, want a second run and no crash: the owner renews what nobody took", starts.Len(), crashes.Load())
		}
	})
}

// TestPollsGoOnRightAfterAnOutage: the poll during which an outage ends has waited for
// answers. That is no reason to rest for ten times as long, as after a poll that costs
// the database so much.
func TestPollsGoOnRightAfterAnOutage(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var started testapp.Moments
		consumer := bus.Consume("c", func(context.Context, order) error { started.Add(); return nil })
		a, others := newApp(consumer), newApp(consumer)
		processorSide, breaker := breakable(a)
		r := processorSide.StartWith(ctx, outbox.ProcessorConfig{})
		testapp.Sooner(t, "it runs", func() bool { return r.Health().Ready })
		breaker.open.Store(true)
		testapp.Sooner(t, "it notices", func() bool { return !r.Health().Ready })
		breaker.slow.Store(true)
		breaker.open.Store(false)
		testapp.Sooner(t, "the outage is over", func() bool { return r.Health().Ready })
		breaker.slow.Store(false)
		over := time.Now()
		others.ProduceAt(ctx, order{ID: "1"})
		testapp.Sooner(t, "the message is done", a.Empty)
		if after := started.At(0).Sub(over); after > 5*time.Second {
			t.Errorf("a message that others produce right after an outage runs after %s, want about a poll", after)
		}
		r.MustStop()
	})
}

// TestASlowLookDoesNotDelayWakeUpsOfOthers: one that took long is no reason not to hear of what others
// commit for ten times as long.
func TestASlowLookDoesNotDelayWakeUpsOfOthers(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var started testapp.Moments
		consumer := bus.Consume("c", func(context.Context, order) error { started.Add(); return nil })
		a, others := newApp(consumer), newApp(consumer)
		processorSide, breaker := breakable(a)
		r := processorSide.StartWith(ctx, outbox.ProcessorConfig{PollInterval: time.Minute})
		testapp.Sooner(t, "it runs", func() bool { return r.Health().Ready })
		<-time.After(time.Second)
		breaker.slow.Store(true)
		access.Wakeups(a.Registry).Send(wakeup.Wake{Remote: true})
		<-time.After(time.Second)
		breaker.slow.Store(false) // what has begun takes 3 s
		<-time.After(6 * time.Second)
		committed := time.Now()
		others.ProduceAt(ctx, order{ID: "1"})
		access.Wakeups(a.Registry).Send(wakeup.Wake{Remote: true})
		testapp.Sooner(t, "the message is done", a.Empty)
		if after := started.At(0).Sub(committed); after > time.Second {
			t.Errorf("a message of which others tell runs after %s, want at once", after)
		}
		r.MustStop()
	})
}

// TestLooksForOthersStayRareOnASlowDatabase: others wake this process all the time, also while it looks, and a
// look takes 10 ms. It has the pause that the looks before have earned, and not half of a connection.
func TestLooksForOthersStayRareOnASlowDatabase(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		a := newApp(bus.Consume("c", func(context.Context, order) error { return nil }))
		var looks atomic.Int64
		processorSide := *a
		processorSide.DB = a.DB.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) {
			if strings.Contains(query, "AS kind") {
				looks.Add(1)
				<-time.After(10 * time.Millisecond)
			}
		}))
		r := processorSide.StartWith(ctx, outbox.ProcessorConfig{PollInterval: time.Minute})
		testapp.Sooner(t, "it runs", func() bool { return r.Health().Ready })
		<-time.After(2 * time.Second)
		before := looks.Load()
		for range 5000 { // for five seconds
			access.Wakeups(a.Registry).Send(wakeup.Wake{Remote: true})
			<-time.After(time.Millisecond)
		}
		// One in 50 ms, and of the polls, which know of what becomes due, one in 110 ms.
		if n := looks.Load() - before; n < 50 || n > 160 {
			t.Errorf("got %d looks in 5 s, want about 140", n)
		}
		r.MustStop()
	})
}

// A database that is read-only answers every poll. That must not pass for the end
// of the outage: whoever writes first afterwards would take the claims of others
// before they could renew them.
// Promise: outage, poison
func TestReadsDoNotEndAnOutageOfWrites(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		config := outbox.ProcessorConfig{Concurrency: 8, LeaseDuration: 6 * time.Second}
		var crashes atomic.Int64
		a := newApp(bus.Consume("c", func(ctx context.Context, _ order) error {
			m, _ := bus.MessageFromContext(ctx)
			crashes.Add(int64(m.CrashCount))
			<-ctx.Done()
			return ctx.Err()
		}, bus.Timeout(time.Hour)))
		for range 20 {
			a.ProduceAt(ctx, order{ID: "1"})
		}
		processorSide, breaker := breakable(a)
		var processors []*testapp.Running
		for range 3 {
			processors = append(processors, processorSide.StartWith(ctx, config))
		}
		testapp.Sooner(t, "everything is claimed", func() bool {
			return processors[0].Stats().Running+processors[1].Stats().Running+processors[2].Stats().Running == 20
		})
		processors = append(processors, processorSide.StartWith(ctx, config)) // which holds nothing
		testapp.Sooner(t, "the last one runs", func() bool { return processors[3].Health().Ready })
		for range 5 {
			breaker.readOnly.Store(true)
			<-time.After(2 * config.LeaseDuration) // the outage outlasts the lease
			for _, p := range processors {
				if health := p.Health(); health.Ready || health.Err == nil {
					t.Errorf("health while nothing can be written: got %+v, want not ready and the error", health)
				}
			}
			breaker.readOnly.Store(false)
			<-time.After(2 * config.LeaseDuration)
			if n := a.Count("SELECT count(*) FROM consumer_messages WHERE crashes > 0"); n > 0 || crashes.Load() > 0 {
				t.Fatalf("messages with a crash: got %d now and %d in runs, want none: their owners live", n, crashes.Load())
			}
		}
		for _, p := range processors {
			_ = p.Wait()
		}
	})
}

func TestLeaseIsRenewedWhileAConsumerRuns(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var runs atomic.Int64
		a := newApp(bus.Consume("slow", func(ctx context.Context, _ order) error {
			runs.Add(1)
			<-time.After(5 * time.Minute)
			return ctx.Err()
		}, bus.Timeout(time.Hour)))
		a.ProduceAt(ctx, order{ID: "1"})
		r, other := a.StartWith(ctx, outbox.ProcessorConfig{}), a.StartWith(ctx, outbox.ProcessorConfig{})
		testapp.Sooner(t, "the message is done", a.Empty)
		r.MustStop()
		other.MustStop()
		if got := runs.Load(); got != 1 {
			t.Errorf("runs: got %d, want 1 in ten leases", got)
		}
	})
}

func TestClaimWhoseCommitWasNeverConfirmedIsGivenBack(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var crashes, runs atomic.Int64
		a := newApp(
			bus.Consume("slow", func(context.Context, order) error { <-time.After(2 * time.Minute); return nil }, bus.Timeout(time.Hour)),
			bus.Consume("stray", func(ctx context.Context, _ refund) error {
				m, _ := bus.MessageFromContext(ctx)
				crashes.Add(int64(m.CrashCount))
				runs.Add(1)
				return nil
			}))
		a.ProduceAt(ctx, order{ID: "1"})
		r := a.StartWith(ctx, outbox.ProcessorConfig{})
		claims := func() int { return a.Count("SELECT count(*) FROM message_claims") }
		testapp.Sooner(t, "the slow one is claimed", func() bool { return claims() == 1 })
		// The same owner holds another message without knowing it.
		a.Exec(`INSERT INTO consumer_messages (id, message_id, consumer_type, payload_type, payload, created_at, available_after)
			SELECT 999, '0198c2f4-5f6e-7abc-8def-0123456789ab', 'stray', 'order.refunded', '{}', created_at, available_after FROM consumer_messages`)
		a.Exec(`INSERT INTO message_claims (owner, solo, claimed_at, leased_until, message_ids)
			SELECT owner, 0, claimed_at, leased_until, '[999]' FROM message_claims`)
		start := time.Now()
		testapp.Sooner(t, "the stray message runs", func() bool { return runs.Load() == 1 })
		if took := time.Since(start); took > 25*time.Second || crashes.Load() != 0 {
			t.Errorf("ran after %s with %d crashes, want within two renewals and without a crash", took, crashes.Load())
		}
		testapp.Sooner(t, "everything is done", a.Empty)
		r.MustStop()
	})
}

func TestMiddlewareThatNeverReturnsIsNamed(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		release := make(chan struct{})
		entered := make(chan struct{})
		stuck := func(next bus.Handler) bus.Handler {
			return func(ctx context.Context, m *bus.Message) error {
				close(entered)
				<-release
				return next(ctx, m)
			}
		}
		a := newApp(bus.Consume("c", func(context.Context, order) error { return nil }))
		a.ProduceAt(ctx, order{ID: "1"})
		r := a.StartWith(ctx, outbox.ProcessorConfig{Middleware: []bus.Middleware{stuck}, DrainTimeout: time.Second})
		<-entered
		var drain *bus.DrainError
		if err := r.Wait(); !errors.As(err, &drain) || len(drain.Consumers) != 1 || drain.Consumers[0] != "c" {
			t.Errorf("run: got %v, want a DrainError that names c", err)
		}
		if rows := a.Pending(); len(rows) != 1 || rows[0].Attempts != 0 || a.Count("SELECT count(*) FROM message_claims") != 0 {
			t.Errorf("left: got %+v, want the message given back untouched", rows)
		}
		close(release)
		synctest.Wait()
	})
}

// failures is a hook of bun that is told of the statements that fail.
type failures func(query string, err error)

func (failures) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context { return ctx }

func (f failures) AfterQuery(_ context.Context, e *bun.QueryEvent) {
	if e.Err != nil {
		f(e.Query, e.Err)
	}
}

// A claim that the server does not get done with keeps Run no longer than DrainTimeout and
// two seconds.
func TestAStopWaitsForNoClaim(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		open                    func(testing.TB) *bun.DB
		claim, lock, waits, end string
	}{
		"postgres": {testdb.Postgres, "SELECT w.i, m.*", "BEGIN; LOCK TABLE message_claims IN ACCESS EXCLUSIVE MODE",
			"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%SELECT w.i, m.*%'", "ROLLBACK"},
		"mariadb": {testdb.MariaDB, "AS held", "LOCK TABLES message_claims WRITE",
			"SELECT count(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND STATE LIKE 'Waiting for table%' AND INFO LIKE '%AS held%'", "UNLOCK TABLES"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := testapp.New(t, c.open(t), testapp.Consumed("c"))
			var stopping, late atomic.Bool
			hooked := *a
			hooked.DB = a.DB.WithQueryHook(failures(func(query string, err error) {
				if stopping.Load() && strings.Contains(query, c.claim) && errors.Is(err, context.DeadlineExceeded) {
					late.Store(true)
				}
			}))
			r := hooked.Start(outbox.ProcessorConfig{DrainTimeout: 500 * time.Millisecond})
			testapp.Eventually(t, "it runs", func() bool { return r.Health().Ready })
			conn := testapp.Must[bun.Conn](t)(a.DB.Conn(t.Context()))
			defer conn.Close()
			testapp.OK(t, testapp.Second(conn.ExecContext(t.Context(), c.lock)))
			a.Produce(order{ID: "1"}) // announced: a claim begins at once
			testapp.Eventually(t, "a claim waits", func() bool { return a.Count(c.waits) > 0 })
			stopping.Store(true)
			if err := r.Wait(); late.Load() {
				t.Errorf("Run returned %v after the stop, when the claim's own time of 5s was over, want 2.5s", err)
			}
			if _, err := conn.ExecContext(context.WithoutCancel(t.Context()), c.end); err != nil {
				t.Error(err)
			}
		})
	}
}

// A row that somebody has written by hand, and that cannot be read, holds up nobody.
func TestAnInstantThatCannotBeReadDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		open  func(testing.TB) *bun.DB
		spoil string
	}{
		"postgres": {testdb.Postgres, "available_after = '-infinity'"},
		"sqlite":   {testdb.SQLite, "created_at = 'yesterday'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, crashes := range []int{0, 1} {
				var n atomic.Int64
				a := testapp.New(t, c.open(t), testapp.Counting("c", &n))
				a.Produce(order{ID: "1"})
				a.Exec("UPDATE consumer_messages SET crashes = ?, "+c.spoil, crashes)
				a.Produce(order{ID: "2"})
				r := a.Start(outbox.ProcessorConfig{})
				testapp.Eventually(t, "both run", func() bool { return n.Load() == 2 })
				r.MustStop()
			}
		})
	}
}
