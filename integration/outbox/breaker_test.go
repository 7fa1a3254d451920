package outbox_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestABreakerOpensInAllProcesses once too many runs have failed in one of them: no attempts
// are counted from then on, one message at a time probes, and one that is done closes it.
func TestABreakerOpensInAllProcesses(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var down atomic.Bool
		var g gauge
		down.Store(true)
		a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error {
			defer g.enter()()
			<-time.After(5 * time.Millisecond)
			if down.Load() {
				return errors.New("connection refused")
			}
			return nil
		}, bus.CircuitBreaker(bus.CircuitBreakerConfig{MinRequests: 10, Window: 20 * time.Second,
			Cooldown: time.Second}), bus.AttemptDelay(20*time.Millisecond), bus.MaxAttempts(1000)))
		processors := []*testapp.Running{a.Start(testapp.Fast()), a.Start(testapp.Fast())}
		a.ProduceMany(60)
		testapp.Eventually(t, "it is open everywhere", func() bool {
			for _, r := range processors {
				if len(r.Health().OpenCircuits) != 1 {
					return false
				}
			}
			return true
		})
		if reason := processors[0].Health().OpenCircuits[0].Reason; !strings.Contains(reason,
			" runs failed; next try at ") || !strings.HasSuffix(reason, "last error in this process: connection refused") {
			t.Errorf("Health: got %q, want the reason", reason)
		}
		const attempts = "SELECT COALESCE(SUM(attempts), 0) FROM consumer_messages"
		most := g.most.Load()
		testapp.Eventually(t, "what had begun is over", func() bool {
			return processors[0].Stats().Running+processors[1].Stats().Running == 0 && a.Count("SELECT count(*) FROM message_claims") == 0
		})
		g.most.Store(0)
		before, ran := a.Count(attempts), g.runs.Load()
		testapp.Eventually(t, "some probe", func() bool { return g.runs.Load() >= ran+2 })
		if n := a.Count(attempts); n != before {
			t.Errorf("got %d attempts counted while it was open, want none", n-before)
		}
		if g.most.Load() > 1 || most < 2 {
			t.Errorf("got %d probes at once, and %d runs before, want one and more", g.most.Load(), most)
		}
		testapp.Eventually(t, "it is known as the reason", func() bool {
			pending := a.Pending()
			e := testapp.Must[admin.Explanation](t)(a.Admin().Explain(a.Context(), db, pending[len(pending)-1].ID))
			return e.Reason == admin.CircuitBreakerOpen && strings.Contains(e.Text, "Consumer \"c\": circuit open since ")
		})
		down.Store(false)
		testapp.Eventually(t, "all ran", a.Empty)
		testapp.Eventually(t, "it is closed", func() bool {
			return len(processors[0].Health().OpenCircuits)+len(processors[1].Health().OpenCircuits) == 0
		})
		for _, r := range processors {
			r.MustStop()
		}
		if n := a.Count("SELECT count(*) FROM message_breakers WHERE open_until IS NOT NULL"); n != 0 {
			t.Errorf("got %d rows of breakers that are open, want none", n)
		}
	})
}

// TestABreakerStaysClosedWhileMostIsDone: what is done in another process counts, too.
func TestABreakerStaysClosedWhileMostIsDone(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var runs atomic.Int64
		a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error {
			switch runs.Add(1) % 4 {
			case 0:
				return errors.New("not this time")
			case 1:
				return bus.Permanent(errors.New("never, which is the message's fault"))
			}
			return nil
		}, bus.CircuitBreaker(bus.CircuitBreakerConfig{MinRequests: 10, FailureRatio: 0.6,
			Cooldown: time.Minute}), bus.AttemptDelay(time.Millisecond)))
		a.ProduceMany(300)
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "nothing waits", a.Empty)
		testapp.Eventually(t, "runs are counted", func() bool { return a.Count("SELECT count(*) FROM message_breakers WHERE failed > 10") == 1 })
		if closed := r.Health().OpenCircuits; len(closed) != 0 {
			t.Errorf("got %v closed, want none", closed)
		}
		r.MustStop()
	})
}

// TestABreakerCountsWhatWasDoneBeforeItsRunsFailed: for as long as nothing fails nothing is written, and yet a second of failures
// is not most of a window.
func TestABreakerCountsWhatWasDoneBeforeItsRunsFailed(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var failed atomic.Int64
		a := newApp(bus.Consume("c", func(_ context.Context, o order) error {
			if o.ID == "bad" {
				failed.Add(1)
				return errors.New("no luck")
			}
			return nil
		}, bus.CircuitBreaker(bus.CircuitBreakerConfig{Window: 30 * time.Second}), bus.MaxAttempts(1)))
		r := a.StartWith(ctx, outbox.ProcessorConfig{})
		for range 25 {
			for range 20 {
				a.ProduceAt(ctx, order{ID: "good"})
			}
			<-time.After(time.Second)
		}
		if n := a.Count("SELECT count(*) FROM message_breakers"); n != 0 {
			t.Errorf("rows of breakers while nothing fails: got %d, want none", n)
		}
		for range 30 {
			a.ProduceAt(ctx, order{ID: "bad"})
		}
		<-time.After(3 * time.Second)
		if open := r.Health().OpenCircuits; failed.Load() != 30 || len(open) != 0 {
			t.Errorf("after 500 runs that are done and %d that failed: got %+v, want no open breaker", failed.Load(), open)
		}
		<-time.After(time.Minute)
		for range 30 {
			a.ProduceAt(ctx, order{ID: "bad"})
		}
		<-time.After(3 * time.Second)
		if open := r.Health().OpenCircuits; len(open) != 1 {
			t.Errorf("a window later: got %+v, want an open breaker", open)
		}
		r.MustStop()
	})
}

func TestABreakerIsNotBesideACircuit(t *testing.T) {
	t.Parallel()
	var circuit outbox.Circuit
	registry, err := bus.NewRegistry(testapp.Consumed("c", bus.CircuitBreaker(bus.CircuitBreakerConfig{}), outbox.WithCircuit(&circuit)))
	if err == nil {
		_, err = outbox.NewProcessor(testdb.SQLite(t), registry, outbox.ProcessorConfig{})
	}
	if want := "CircuitBreaker and WithCircuit do not go together"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// TestABreakerThatCouldNotBeClosedIsClosedLater: no other probe need come, since nothing waits any more.
func TestABreakerThatCouldNotBeClosedIsClosedLater(t *testing.T) {
	t.Parallel()
	var refused, down atomic.Bool
	db := testdb.OpenRewritten(t, testdb.PostgresDSN(t), func(sql string) string {
		if strings.Contains(sql, "opened_at = NULL, open_until = NULL") && refused.CompareAndSwap(false, true) {
			return `DO $$ BEGIN RAISE EXCEPTION 'not now'; END $$`
		}
		return sql
	})
	down.Store(true)
	a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error {
		if down.Load() {
			return errors.New("connection refused")
		}
		return nil
	}, bus.CircuitBreaker(bus.CircuitBreakerConfig{MinRequests: 10, Window: 20 * time.Second,
		Cooldown: time.Second}), bus.AttemptDelay(20*time.Millisecond), bus.MaxAttempts(1000)))
	r := a.Start(testapp.Fast())
	a.ProduceMany(20)
	const open = "SELECT count(*) FROM message_breakers WHERE open_until IS NOT NULL"
	testapp.Eventually(t, "it is open", func() bool { return len(r.Health().OpenCircuits) == 1 && a.Count(open) == 1 })
	down.Store(false)
	testapp.Eventually(t, "all ran", a.Empty)
	testapp.Eventually(t, "it is closed", func() bool { return a.Count(open) == 0 })
	if !refused.Load() {
		t.Error("it was closed at once, want that refused")
	}
}

// TestALockedBreakerKeepsNoOtherAsItIs: a process stands still in the middle of counting runs of one breaker.
func TestALockedBreakerKeepsNoOtherAsItIs(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	var down atomic.Bool
	var done atomic.Int64
	down.Store(true)
	a := testapp.New(t, testdb.OpenPostgres(t, dsn),
		bus.Consume("failing", func(context.Context, order) error { return errAway },
			bus.CircuitBreaker(bus.CircuitBreakerConfig{MinRequests: 1_000_000,
				Window: time.Hour}), bus.MaxAttempts(1_000_000), bus.AttemptDelay(100*time.Millisecond)),
		bus.Consume("other", func(context.Context, refund) error {
			if down.Load() {
				return errAway
			}
			done.Add(1)
			return nil
		}, bus.CircuitBreaker(bus.CircuitBreakerConfig{MinRequests: 5,
			Cooldown: time.Second}), bus.MaxAttempts(1000), bus.AttemptDelay(100*time.Millisecond)))
	r := a.Start(testapp.Fast())
	for range 20 {
		a.Produce(refund{ID: "1"})
	}
	a.ProduceMany(20)
	testapp.Eventually(t, "the breaker of other is open, and runs of failing are counted", func() bool {
		return a.Count("SELECT count(*) FROM message_breakers WHERE open_until IS NOT NULL") == 1 &&
			a.Count("SELECT count(*) FROM message_breakers WHERE name = 'failing'") == 1
	})
	tx := testapp.Must[bun.Tx](t)(testdb.OpenPostgres(t, dsn).BeginTx(t.Context(), nil))
	defer func() { _ = tx.Rollback() }()
	testapp.OK(t, testapp.Second(tx.NewRaw("SELECT name FROM message_breakers WHERE name = 'failing' FOR UPDATE").Exec(t.Context())))
	down.Store(false)
	testapp.Eventually(t, "other runs again", func() bool { return done.Load() > 0 })
	_ = tx.Rollback()
	r.Stop(nil)
	_ = r.Wait()
}

// TestAnOpenBreakerIsSeenAndProbedAtOnce: queues show since when it is open, and one message runs before the cooldown is over when
// somebody asks for that.
// Promise: breaker
func TestAnOpenBreakerIsSeenAndProbedAtOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var down atomic.Bool
		var done atomic.Int64
		down.Store(true)
		a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error {
			if down.Load() {
				return errAway
			}
			done.Add(1)
			return nil
		}, bus.CircuitBreaker(bus.CircuitBreakerConfig{MinRequests: 2,
			Cooldown: time.Hour}), bus.Aliases("former"), bus.MaxAttempts(1000), bus.AttemptDelay(time.Millisecond)))
		client := a.Admin()
		if err := client.Probe(t.Context(), db, "c"); !errors.Is(err, admin.ErrNotOpen) {
			t.Errorf("closed: got %v, want ErrNotOpen", err)
		}
		r := a.Start(testapp.Fast())
		a.ProduceMany(5)
		queue := func() admin.Queue {
			queues := testapp.Must[[]admin.Queue](t)(client.Queues(t.Context(), db))
			return queues[0]
		}
		testapp.Eventually(t, "the breaker is open", func() bool { return queue().Breaker != nil })
		if b := *queue().Breaker; time.Until(b.NextProbeAt) < 30*time.Minute || b.Failed < 2 || b.Runs < b.Failed {
			t.Errorf("got %+v, want the next probe in about an hour, and why it is open", b)
		}
		// Whoever has no consumers, such as the command, sees it in the same words, under each name of the consumer.
		a.Exec("UPDATE consumer_messages SET consumer_type = 'former' WHERE id = (SELECT id FROM (SELECT max(id) AS id FROM consumer_messages) AS last)")
		operator := testapp.Must[*admin.Client](t)(admin.NewClient(testapp.Must[*bus.Registry](t)(bus.NewRegistry())))
		for _, q := range testapp.Must[[]admin.Queue](t)(operator.Queues(t.Context(), db)) {
			if q.Breaker == nil || *q.Breaker != *queue().Breaker {
				t.Errorf("queue %s: got %v, want %s", q.Consumer, q.Breaker, queue().Breaker)
			}
		}
		for _, m := range a.Pending() {
			testapp.Eventually(t, "it is due, and the breaker is why it does not run", func() bool {
				e := testapp.Must[admin.Explanation](t)(operator.Explain(t.Context(), db, m.ID))
				return e.Reason == admin.CircuitBreakerOpen && strings.Contains(e.Text, queue().Breaker.String())
			})
		}
		before := queue().Breaker.NextProbeAt
		testapp.OK(t, client.Probe(t.Context(), db, "c"))
		testapp.Eventually(t, "the probe fails, and Health has the next one", func() bool {
			b, circuits := queue().Breaker, r.Health().OpenCircuits
			return b.NextProbeAt.After(before) && len(circuits) == 1 && strings.Contains(circuits[0].Reason, b.String())
		})
		down.Store(false)
		testapp.OK(t, client.Probe(t.Context(), db, "c"))
		testapp.Eventually(t, "all ran", a.Empty)
		testapp.Eventually(t, "the breaker is closed", func() bool { return queue().Breaker == nil })
		r.MustStop()
	})
}

// TestAProbeThatShowsNothingIsFollowedByAnother at once: breakers ignore snoozes, discards and permanent errors.
// Promise: due-starts
func TestAProbeThatShowsNothingIsFollowedByAnother(t *testing.T) {
	for what, ignored := range map[string]error{
		"snoozed": bus.Snooze(time.Hour), "discarded": bus.Discard(errAway), "permanent": bus.Permanent(errAway),
	} {
		t.Run(what, func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				var down atomic.Bool
				var done atomic.Int64
				var g gauge
				down.Store(true)
				a := newApp(bus.Consume("c", func(_ context.Context, o order) error {
					defer g.enter()()
					<-time.After(time.Millisecond)
					switch {
					case down.Load():
						return errAway
					case o.ID == "waits":
						return ignored
					}
					done.Add(1)
					return nil
				}, bus.CircuitBreaker(bus.CircuitBreakerConfig{MinRequests: 2, Cooldown: 5 * time.Second}),
					bus.MaxAttempts(1000), bus.AttemptDelay(time.Millisecond)))
				for range 20 {
					a.ProduceAt(ctx, order{ID: "waits"})
				}
				r := a.StartWith(ctx, outbox.ProcessorConfig{})
				testapp.Sooner(t, "the breaker is open", func() bool { return len(r.Health().OpenCircuits) == 1 })
				a.ProduceAt(ctx, order{ID: "works"}, outbox.Delay(2*time.Second)) // behind the others
				down.Store(false)
				g.most.Store(0)
				<-time.After(12 * time.Second)
				if n := done.Load(); n != 1 || len(r.Health().OpenCircuits) != 0 {
					t.Errorf("after two cooldowns: got %d done and %+v, want one, and the breaker closed", n, r.Health().OpenCircuits)
				}
				if n := g.most.Load(); n > 1 {
					t.Errorf("got %d probes at once, want one", n)
				}
				r.MustStop()
			})
		})
	}
}

// TestABreakerIsReportedAtOnce as it opens and as it closes: a heartbeat may be long off.
func TestABreakerIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	var down atomic.Bool
	down.Store(true)
	consumer := bus.Consume("c", func(context.Context, order) error {
		if down.Load() {
			return errAway
		}
		return nil
	}, bus.CircuitBreaker(bus.CircuitBreakerConfig{MinRequests: 2, Cooldown: time.Hour}), bus.MaxAttempts(1000), bus.AttemptDelay(1))
	a := testapp.New(t, db, consumer)
	a.Registry = testapp.Must[*bus.Registry](t)(bus.RegistryConfig{HeartbeatInterval: time.Hour}.NewRegistry(consumer))
	config := testapp.Fast()
	log := new(testapp.Lines)
	config.Logger = log.Logger()
	r := a.Start(config)
	a.ProduceMany(5)
	reported := func() (circuits []bus.OpenCircuit) {
		for _, p := range testapp.Must[[]admin.Process](t)(a.Admin().Processes(t.Context(), db, time.Hour)) {
			circuits = append(circuits, p.OpenCircuits...)
		}
		return circuits
	}
	testapp.Eventually(t, "the open circuit is reported, and its error", func() bool {
		circuits := reported()
		return len(circuits) == 1 && strings.Contains(circuits[0].Reason, errAway.Error())
	})
	testapp.OK(t, a.Admin().Probe(t.Context(), db, "c"))
	testapp.Eventually(t, "the failed probe is logged", func() bool { return strings.Contains(log.String(), "the probe failed") })
	down.Store(false)
	testapp.OK(t, a.Admin().Probe(t.Context(), db, "c"))
	testapp.Eventually(t, "no open circuit is reported", func() bool { return len(reported()) == 0 })
	r.MustStop()
	if n := strings.Count(log.String(), "circuit breaker closed"); n != 1 {
		t.Errorf("lines about the end: got %d, want 1: %s", n, log.String())
	}
}

// TestARenamedConsumerHasTheSameBreaker: neither a rollout nor the time after it runs messages against what is down.
// Promise: breaker
func TestARenamedConsumerHasTheSameBreaker(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var runs atomic.Int64
		var up atomic.Bool
		app := func(name string, options ...bus.ConsumerOption) *app {
			return testapp.New(t, db, bus.Consume(name, func(context.Context, order) error {
				if runs.Add(1); up.Load() {
					return nil
				}
				return errAway
			}, append(options, bus.CircuitBreaker(bus.CircuitBreakerConfig{MinRequests: 2, Cooldown: time.Hour}),
				bus.MaxAttempts(1000), bus.AttemptDelay(time.Millisecond))...))
		}
		before, after := app("charge"), app("charge-card", bus.Aliases("charge"))
		r := before.Start(testapp.Fast())
		before.ProduceMany(2)
		testapp.Eventually(t, "the breaker is open", func() bool { return len(r.Health().OpenCircuits) == 1 })
		r.MustStop()
		after.Exec("UPDATE consumer_messages SET available_after = " + testapp.In(db, time.Hour))
		r = after.Start(testapp.Fast())
		testapp.Eventually(t, "it is open under the new name", func() bool { return len(r.Health().OpenCircuits) == 1 })
		ran := runs.Load()
		up.Store(true)
		after.Exec("UPDATE consumer_messages SET available_after = " + testapp.NowOf(db))
		testapp.OK(t, after.Admin().Probe(t.Context(), db, "charge-card"))
		testapp.Eventually(t, "all ran", after.Empty)
		if n := runs.Load() - ran; n != 2 {
			t.Errorf("runs: got %d, want 2", n)
		}
		testapp.Eventually(t, "it is closed", func() bool {
			return after.Count("SELECT count(*) FROM message_breakers WHERE open_until IS NOT NULL") == 0
		})
		r.MustStop()
	})
}

// TestAnOpenBreakerIsKeptOpenAndClosedWithItsRow: a process without a message to probe with shows that it has the breaker.
func TestAnOpenBreakerIsKeptOpenAndClosedWithItsRow(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error { return errAway }, bus.MaxAttempts(1000),
		bus.CircuitBreaker(bus.CircuitBreakerConfig{MinRequests: 2, Cooldown: time.Hour}), bus.AttemptDelay(time.Millisecond)))
	r := a.Start(testapp.Fast())
	a.ProduceMany(2)
	testapp.Eventually(t, "the breaker is open", func() bool { return len(r.Health().OpenCircuits) == 1 })
	a.Exec("DELETE FROM consumer_messages")
	a.Exec("UPDATE message_breakers SET open_until = " + testapp.In(db, -time.Hour))
	open := func() int {
		queues := testapp.Must[[]admin.Queue](t)(a.Admin().Queues(t.Context(), db))
		return len(slices.DeleteFunc(queues, func(q admin.Queue) bool { return q.Breaker == nil }))
	}
	testapp.Eventually(t, "it is kept open", func() bool { return open() == 1 })
	a.Exec("DELETE FROM message_breakers")
	testapp.Eventually(t, "it is closed", func() bool { return len(r.Health().OpenCircuits) == 0 })
	r.MustStop()
}
