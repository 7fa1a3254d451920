package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/minutes"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// holdUp is something that keeps a consumer, or a key, from starting messages.
type holdUp struct {
	option bus.ConsumerOption
	sets   func(a *app)
	reason admin.State
	text   string
}

// holdUps returns everything that Explain has to name, as a processor would leave it in the database or the process.
func holdUps() map[string]holdUp {
	var circuit outbox.Circuit
	later := func(a *app) string { return testapp.In(a.DB, time.Hour) }
	return map[string]holdUp{
		"breaker": {bus.CircuitBreaker(bus.CircuitBreakerConfig{MinRequests: 2, Cooldown: time.Hour}), func(a *app) {
			r := a.Start(testapp.Fast())
			for _, key := range []string{"x", "y"} {
				a.Produce(order{ID: "opens it"}, outbox.OrderingKey(key))
			}
			testapp.Eventually(a.T, "it is open", func() bool {
				return a.Count("SELECT count(*) FROM message_breakers WHERE opened_at IS NOT NULL") > 0
			})
			r.MustStop()
		}, admin.CircuitBreakerOpen, "circuit open since"},
		"circuit": {outbox.WithCircuit(&circuit), func(*app) { _ = circuit.Trip(errors.New("away")) }, admin.CircuitOpen, `The circuit of consumer "c"`},
		"limit": {bus.GlobalConcurrency(1), func(a *app) {
			a.Exec("INSERT INTO message_slots (name, n, owner, leased_until) SELECT 'c', 1, 'other', " + later(a))
		}, admin.Limited, `limit "c" of 1 is reached`},
		"rate": {bus.RateLimit(1, time.Minute, 1), func(a *app) {
			a.Exec("INSERT INTO message_rates (name, used_to) SELECT 'c', " + later(a))
		}, admin.RateLimited, "The consumer starts at most 1 in 1m0s"},
		"key rate": {bus.KeyRateLimit(1, time.Minute, 1), func(a *app) {
			a.Exec("INSERT INTO message_key_rates (name, lane, used_to) SELECT 'c', MIN(lane), " + later(a) + " FROM consumer_messages")
		}, admin.RateLimited, "The key starts at most 1 in 1m0s"},
	}
}

// TestExplainGivesOneReasonForAKey: the first message of a key and the one behind it wait for the same, whether or not their last
// process was lost.
func TestExplainGivesOneReasonForAKey(t *testing.T) {
	t.Parallel()
	for name := range holdUps() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each := testdb.Each
			if name == "key rate" {
				each = testdb.EachWithEvents // MariaDB has no key rates
			}
			each(t, func(t *testing.T, db *bun.DB) {
				held := holdUps()[name]
				a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error { return errors.New("no") },
					held.option, bus.Ordered(bus.BlockKey), bus.MaxAttempts(100), bus.AttemptDelay(time.Hour)))
				a.Produce(order{ID: "first"}, outbox.OrderingKey("k"))
				a.Produce(order{ID: "second"}, outbox.OrderingKey("k"))
				rows := a.Pending()
				held.sets(a)
				a.Exec("UPDATE consumer_messages SET available_after = " + testapp.NowOf(db))
				for crashes, set := range []string{"crashes = 0", "crashes = 1", "crashes = 2"} {
					a.Exec("UPDATE consumer_messages SET " + set)
					first := testapp.Must[admin.Explanation](t)(a.Admin().Explain(t.Context(), db, rows[0].ID))
					second := testapp.Must[admin.Explanation](t)(a.Admin().Explain(t.Context(), db, rows[1].ID))
					if first.Reason != held.reason || !strings.Contains(first.Text, held.text) {
						t.Errorf("the first, with %d crashes: got %s: %s", crashes, first.Reason, first.Text)
					}
					if second.Reason != held.reason && second.Reason != admin.BehindKey || !strings.Contains(second.Text, held.text) {
						t.Errorf("the second, with %d crashes: got %s: %s", crashes, second.Reason, second.Text)
					}
				}
			})
		})
	}
}

// reporting is an application whose processes report that often.
func reporting(t *testing.T, db *bun.DB, every time.Duration, consumers ...bus.Consumer) *testapp.App {
	t.Helper()
	a := testapp.New(t, db, consumers...)
	a.Registry = testapp.Must[*bus.Registry](t)(bus.RegistryConfig{HeartbeatInterval: every, AppVersion: "v1.8.0"}.NewRegistry(consumers...))
	a.Producer = testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry, outbox.ProducerConfig{}))
	return a
}

// TestReports: who runs, what has become of messages, and which failures belong together, also while
// the process is stopped.
func TestReports(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := reporting(t, db, 50*time.Millisecond,
			testapp.Consumed("fine", bus.Concurrency(3)),
			bus.Consume("fails", func(_ context.Context, o order) error {
				if o.N == 0 {
					return bus.Permanent(errors.New("no such account"))
				}
				return fmt.Errorf("account %d is locked", o.N)
			}, bus.MaxAttempts(2), bus.AttemptDelay(time.Millisecond), bus.Aliases("failed")),
		)
		p := a.Start(testapp.Fast())
		a.ProduceMany(5)
		testapp.Eventually(t, "all is consumed or poisoned", func() bool { return a.Count("SELECT count(*) FROM consumer_messages") == 0 })
		p.MustStop()

		client, ctx := a.Admin(), t.Context()
		processes := testapp.Must[[]admin.Process](t)(client.Processes(ctx, db, time.Hour))
		if len(processes) != 1 || processes[0].Status != admin.ProcessStopped || processes[0].Kind != "processor" ||
			processes[0].PID == 0 || processes[0].Program == "" || processes[0].Version != "v1.8.0" {
			t.Fatalf("got %+v, want one processor, which has stopped", processes)
		}
		for _, c := range processes[0].Consumers {
			if c.Name == "fails" && (c.MaxAttempts != 2 || len(c.Former) != 1 || c.PayloadTypes[0] != "order.placed" || c.Timeout == 0) {
				t.Errorf("got %+v, want what it takes", c)
			}
		}
		of := make(map[string]minutes.Stats)
		st := testapp.Must[*store.Store](t)(store.For(db.Dialect().Name(), bus.Tables{}))
		for _, m := range testapp.Must[[]minutes.Stats](t)(minutes.Read(ctx, db, st, time.Hour)) {
			sum := of[m.Consumer]
			sum.Done, sum.Retried, sum.Poisoned = sum.Done+m.Done, sum.Retried+m.Retried, sum.Poisoned+m.Poisoned
			for i := range m.Run {
				sum.Run[i], sum.Lag[i] = sum.Run[i]+m.Run[i], sum.Lag[i]+m.Lag[i]
			}
			of[m.Consumer] = sum
		}
		if got := of["fine"]; got.Done != 5 || total(got.Run) != 5 || total(got.Lag) != 5 {
			t.Errorf("fine: got %+v, want 5 done", got)
		}
		if got := of["fails"]; got.Done != 0 || got.Retried != 4 || got.Poisoned != 5 || total(got.Run) != 9 {
			t.Errorf("fails: got %+v, want 4 retried and 5 poisoned", got)
		}
		if q := of["fails"].Run.Quantile(0.5); q == 0 || q > time.Minute {
			t.Errorf("half of the runs took up to %s", q)
		}
		failures := testapp.Must[[]admin.FailureGroup](t)(client.Failures(ctx, db, "fails", 10))
		runs := make(map[string]int64)
		for _, f := range failures {
			runs[f.Fingerprint] = f.Runs
			if !strings.HasSuffix(f.Sample, "is locked") && f.Sample != "no such account" {
				t.Errorf("sample: got %q, want the text of an error", f.Sample)
			}
		}
		poisoned, _, err := testapp.Must[*poison.Store](t)(poison.NewStore(a.Registry)).List(ctx, db, poison.Filter{}, admin.Page{})
		if err != nil {
			t.Fatal(err)
		}
		kinds := make(map[string]int64)
		for _, p := range poisoned {
			kinds[p.Fingerprint]++
		}
		if len(failures) != 2 || len(kinds) != 2 {
			t.Fatalf("got %+v and %v, want two kinds of failures", failures, kinds)
		}
		for print, n := range kinds {
			if want := map[int64]int64{1: 1, 4: 8}[n]; want == 0 || runs[print] != want { // the permanent one runs once
				t.Errorf("failures %s: got %d runs of %d messages, want %d", print, runs[print], n, want)
			}
		}
	})
}

func total(histogram minutes.Histogram) (sum int64) {
	for _, n := range histogram {
		sum += n
	}
	return sum
}

// TestAMessageThatProcessNextPoisonsHasAFingerprint although no reporter runs.
func TestAMessageThatProcessNextPoisonsHasAFingerprint(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, bus.Consume("fails", func(context.Context, order) error { return bus.Permanent(errors.New("no")) }))
		a.ProduceMany(1)
		steps(t.Context(), a, newProcessor(a, outbox.ProcessorConfig{}))
		if n := a.Count("SELECT count(*) FROM poisoned_messages WHERE fingerprint IS NOT NULL"); n != 1 {
			t.Errorf("got %d poisoned messages with a fingerprint, want 1", n)
		}
	})
}

// TestReportsThatCannotBeWritten stop nothing, what they had is in the next, and who reports does not seem to have
// vanished.
func TestReportsThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var runs atomic.Int64
		a := reporting(t, db, 20*time.Millisecond, testapp.Counting("c", &runs))
		config := testapp.Fast()
		config.Logger = slog.New(slog.DiscardHandler)
		p := a.Start(config)
		testapp.OK(t, testapp.Second(db.Exec("ALTER TABLE message_minutes RENAME TO aside")))
		a.ProduceMany(10)
		testapp.Eventually(t, "all is consumed", func() bool { return runs.Load() == 10 })
		seen := func() (seen time.Time) {
			for _, p := range testapp.Must[[]admin.Process](t)(a.Admin().Processes(t.Context(), db, time.Hour)) {
				seen = p.SeenAt
			}
			return seen
		}
		for range 2 { // the first may be of a report from before the runs
			before := seen()
			testapp.Eventually(t, "it is seen again", func() bool { return seen().After(before) })
		}
		testapp.OK(t, testapp.Second(db.Exec("ALTER TABLE aside RENAME TO message_minutes")))
		testapp.Eventually(t, "all is told", func() bool { return a.Count("SELECT COALESCE(SUM(done), 0) FROM message_minutes") == 10 })
		p.MustStop()
	})
}

// TestExplainGoesByTheFleet: whoever asks needs none of the consumers.
func TestExplainGoesByTheFleet(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		hold := make(chan struct{})
		a := reporting(t, db, 20*time.Millisecond,
			bus.Consume("slow", func(ctx context.Context, _ order) error {
				select {
				case <-hold:
				case <-ctx.Done():
				}
				return nil
			}, bus.Timeout(time.Minute)))
		elsewhere := testapp.Must[*admin.Client](t)(admin.NewClient(testapp.Must[*bus.Registry](t)(bus.NewRegistry())))
		explained := func(consumer string) admin.Explanation {
			t.Helper()
			rows, _, err := elsewhere.List(t.Context(), db, admin.Filter{Consumer: consumer, State: admin.Ready}, admin.Page{Size: 1})
			if err != nil || len(rows) == 0 {
				return admin.Explanation{}
			}
			return testapp.Must[admin.Explanation](t)(elsewhere.Explain(t.Context(), db, rows[0].ID))
		}
		becomes := func(consumer string, want admin.State, texts ...string) {
			t.Helper()
			var last admin.Explanation
			testapp.Eventually(t, consumer+" is "+string(want), func() bool { last = explained(consumer); return last.Reason == want })
			for _, text := range texts {
				if !strings.Contains(last.Text, text) {
					t.Errorf("%s: got %q, want %q in it", consumer, last.Text, text)
				}
			}
		}
		a.ProduceMany(1)
		becomes("slow", admin.NoConsumer)
		config := testapp.Fast()
		config.Concurrency, config.BatchSize, config.Fetchers = 2, 1, 1
		p := a.Start(config)
		a.ProduceMany(20)
		becomes("slow", admin.Saturated, "a free worker", "pid")
		close(hold)
		testapp.Eventually(t, "slow drains", func() bool {
			return a.Count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'slow'") == 0
		})
		p.MustStop()
		a.ProduceMany(1)
		becomes("slow", admin.NoLiveProcess, "No live process", "stopped at")
	})
}

// TestExplainOfWhatOthersTake: that a consumer is in another program says nothing of why its message waits.
func TestExplainOfWhatOthersTake(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		web := testapp.New(t, db, testapp.Consumed("web")).Admin()
		a.Produce(testapp.Order{})
		keyed := testapp.New(t, db, testapp.Consumed("c", bus.Ordered(bus.BlockKey)))
		keyed.Produce(testapp.Order{}, outbox.OrderingKey("k"))
		keyed.Produce(testapp.Order{}, outbox.OrderingKey("k"))
		ids := testapp.Must[[]int64](t)(idsOf(t.Context(), db))
		now := testapp.In(db, 0)
		a.Exec("INSERT INTO message_processes (id, kind, host, pid, program, version, started_at, seen_at, manifest, state) VALUES ('p', 'processor', 'h', 1, 'shop', 'v1', "+now+", "+now+", ?, ?)",
			`{"consumers":[{"name":"c","payload_types":["order.placed"]}]}`, `{"every":3600000000000,"limit":2}`)
		becomes := func(id int64, want admin.State, text string) {
			t.Helper()
			if e := testapp.Must[admin.Explanation](t)(web.Explain(t.Context(), db, id)); e.Reason != want ||
				!strings.Contains(e.Text, text) || strings.Contains(e.Text, "registered here") {
				t.Errorf("got %s: %s, want %s with %q", e.Reason, e.Text, want, text)
			}
		}
		becomes(ids[0], admin.Ready, "worker in shop v1")
		becomes(ids[2], admin.BehindKey, fmt.Sprintf("Waits for message %d", ids[1]))
		if db.Dialect().Name() != dialect.MySQL { // which has no fair consumers
			fair := testapp.New(t, db, testapp.Consumed("c", bus.Fair()))
			fair.Produce(testapp.Order{}, outbox.OrderingKey("any"))
			fair.Produce(testapp.Order{}, outbox.OrderingKey("any"))
			ids = testapp.Must[[]int64](t)(idsOf(t.Context(), db))
			becomes(ids[4], admin.Ready, "worker in shop v1")
			a.Exec("UPDATE consumer_messages SET attempts = 1, available_after = "+testapp.In(db, time.Hour)+" WHERE id = ?", ids[4])
			becomes(ids[4], admin.Delayed, "Due again in")
		}
		a.Exec("UPDATE consumer_messages SET crashes = 2 WHERE id = ?", ids[0])
		becomes(ids[0], admin.Suspect, "processes were lost")
		a.Exec("UPDATE consumer_messages SET crashes = 0, attempts = 3, available_after = "+testapp.In(db, time.Hour)+" WHERE id = ?", ids[0])
		becomes(ids[0], admin.Delayed, "Failed runs: 3. Due again in")
		testapp.OK(t, web.Pause(t.Context(), db, "c", admin.PauseNote{}))
		becomes(ids[0], admin.Paused, "has been paused")
		a.Exec("UPDATE message_processes SET stopped_at = seen_at")
		becomes(ids[0], admin.NoLiveProcess, "Due at ")
	})
}

func idsOf(ctx context.Context, db *bun.DB) (ids []int64, err error) {
	return ids, db.NewRaw("SELECT id FROM consumer_messages ORDER BY id").Scan(ctx, &ids)
}
