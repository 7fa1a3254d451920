package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

var errAway = errors.New("the other side is away")

// TestAnOpenCircuitWritesNothing: while the other side is away no message costs an attempt or
// is moved, others go on, and once a probe succeeds everything runs.
func TestAnOpenCircuitWritesNothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var circuit outbox.Circuit
		var away atomic.Bool
		var tries, others atomic.Int64
		away.Store(true)
		a := testapp.New(t, db, testapp.Counting("other", &others), bus.Consume("gated", func(context.Context, order) error {
			if tries.Add(1); away.Load() {
				_ = circuit.Trip(errAway)
				return errAway // not what Close returned
			}
			return nil
		}, outbox.WithCircuit(&circuit), bus.MaxAttempts(1)))
		a.ProduceMany(200)
		before := a.Pending()
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "others go on", func() bool { return others.Load() == 200 })
		testapp.Eventually(t, "a probe has failed", func() bool {
			since, _, open := circuit.Tripped()
			return open && time.Since(since) > 1500*time.Millisecond
		})
		failed := tries.Load()
		if health := r.Health(); len(health.OpenCircuits) != 1 || health.OpenCircuits[0].Consumer != "gated" ||
			health.OpenCircuits[0].Reason != errAway.Error() || !health.Ready {
			t.Errorf("Health: got %+v, want the circuit", health)
		}
		testapp.Eventually(t, "all was given back", func() bool { return a.Count("SELECT count(*) FROM message_claims") == 0 })
		after := a.Pending()
		if len(after) != 200 {
			t.Fatalf("got %d that wait, want 200", len(after))
		}
		unchanged := make(map[int64]testapp.Row)
		for _, row := range before {
			unchanged[row.ID] = row
		}
		for _, row := range after {
			if unchanged[row.ID] != row {
				t.Errorf("got %+v, want it untouched: %+v", row, unchanged[row.ID])
			}
		}
		explained := testapp.Must[admin.Explanation](t)(a.Admin().Explain(a.Context(), db, after[0].ID))
		if explained.Reason != admin.CircuitOpen {
			t.Errorf("Explain: got %+v, want %s", explained, admin.CircuitOpen)
		}
		away.Store(false)
		testapp.Eventually(t, "a probe closes the circuit", a.Empty)
		r.MustStop()
		if n := tries.Load(); n != failed+200 && n != failed+201 || failed > 100 {
			t.Errorf("got %d runs, %d of them while it was away: want few of those, and one for each message", n, failed)
		}
	})
}

// TestProbesBecomeRare, and whoever closes the circuit need not wait for one.
func TestProbesBecomeRare(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var circuit outbox.Circuit
		var at testapp.Moments
		var away atomic.Bool
		away.Store(true)
		a := newApp(bus.Consume("gated", func(context.Context, order) error {
			if at.Add(); away.Load() {
				return circuit.Trip(errAway)
			}
			return nil
		}, outbox.WithCircuit(&circuit)))
		for range 3 {
			a.ProduceAt(ctx, order{ID: "1"})
		}
		r := a.StartWith(ctx, outbox.ProcessorConfig{Concurrency: 1})
		testapp.Sooner(t, "seven probes", func() bool { return at.Len() == 8 })
		for i, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			if got := at.At(i + 1).Sub(at.At(i)).Round(time.Second); got != want*time.Second {
				t.Errorf("probe %d: got it after %s, want %s", i, got, want*time.Second)
			}
		}
		away.Store(false)
		opened := time.Now()
		circuit.Reset()
		testapp.Sooner(t, "all are done", a.Empty)
		if took := time.Since(opened); took > time.Second {
			t.Errorf("after Open: got it done after %s, want at once", took)
		}
		r.MustStop()
	})
}

// TestSomethingAlwaysProbes, though only messages that have crashed wait, or each probe panics,
// or many consumers share the circuit; and no more often than is said.
func TestSomethingAlwaysProbes(t *testing.T) {
	for name, test := range map[string]struct {
		run     func(circuit *outbox.Circuit) error
		crashed bool
	}{
		"a panic":                {func(*outbox.Circuit) error { panic("no client") }, false},
		"five that share it":     {func(circuit *outbox.Circuit) error { return circuit.Trip(errAway) }, false},
		"suspects, and it opens": {func(circuit *outbox.Circuit) error { return circuit.Trip(errAway) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				var circuit outbox.Circuit
				var at testapp.Moments
				var consumers []bus.Consumer
				for i := range 5 {
					consumers = append(consumers, bus.Consume(fmt.Sprint("c", i), func(context.Context, order) error {
						at.Add()
						return test.run(&circuit)
					}, outbox.WithCircuit(&circuit)))
				}
				a := newApp(consumers...)
				for range 5 {
					a.ProduceAt(ctx, order{ID: "1"})
				}
				if test.crashed {
					a.Exec("UPDATE consumer_messages SET crashes = 1")
				}
				began := time.Now()
				if err := circuit.Trip(errAway); !errors.Is(err, errAway) {
					t.Errorf("Close: got %v, want it to wrap the reason", err)
				}
				r := a.StartWith(ctx, outbox.ProcessorConfig{})
				<-time.After(20 * time.Second)
				r.MustStop()
				if at.Len() > 4 || at.Len() < 4 && !test.crashed || at.Len() < 3 { // suspects come with a poll
					t.Fatalf("got %d runs, want four probes", at.Len())
				}
				for i, want := range []time.Duration{1, 3, 7, 15}[:at.Len()] {
					got := at.At(i).Sub(began).Round(time.Second)
					if got < want*time.Second || got > want*time.Second && !test.crashed {
						t.Errorf("probe %d: got it after %s, want %s", i, got, want*time.Second)
					}
				}
			})
		})
	}
}

// TestWhatTripReturnsCostsNothing, even if somebody has closed the circuit meanwhile.
func TestWhatTripReturnsCostsNothing(t *testing.T) {
	t.Parallel()
	var circuit outbox.Circuit
	var runs atomic.Int64
	a := testapp.New(t, testdb.SQLite(t), bus.Consume("gated", func(context.Context, order) error {
		if runs.Add(1) > 1 {
			return nil
		}
		defer circuit.Reset()
		return circuit.Trip(errAway)
	}, outbox.WithCircuit(&circuit), bus.MaxAttempts(1)))
	a.Produce(order{ID: "1"})
	r := a.Start(testapp.Fast())
	testapp.Eventually(t, "it ran again", a.Empty)
	r.MustStop()
	if len(a.Poisoned()) > 0 || runs.Load() != 2 {
		t.Errorf("got %d runs and %d poisoned, want one more run", runs.Load(), len(a.Poisoned()))
	}
}

// TestAStepDoesNotWaitForACircuit that opens while it claims.
func TestAStepDoesNotWaitForACircuit(t *testing.T) {
	t.Parallel()
	var circuit outbox.Circuit
	var once sync.Once
	hooked := testdb.SQLite(t).WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) {
		if strings.Contains(query, "INSERT INTO") && strings.Contains(query, "message_claims") {
			once.Do(func() { _ = circuit.Trip(errAway) })
		}
	}))
	a := testapp.New(t, hooked, testapp.Consumed("gated", outbox.WithCircuit(&circuit)))
	a.Produce(order{ID: "1"})
	p := testapp.Must[*outbox.Processor](t)(outbox.NewProcessor(hooked, a.Registry, outbox.ProcessorConfig{}))
	for step := range 2 {
		if ran, err := p.ProcessNext(a.Context()); ran || err != nil {
			t.Errorf("step %d: got %v, %v, want nothing run", step, ran, err)
		}
	}
	circuit.Reset()
	if ran, err := p.ProcessNext(a.Context()); !ran || err != nil {
		t.Errorf("once it is open: got %v, %v, want it run", ran, err)
	}
}

// TestNothingFollowsAProbeThatIsDiscarded, of its key neither: that has not closed the circuit.
func TestNothingFollowsAProbeThatIsDiscarded(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var circuit outbox.Circuit
		var at testapp.Moments
		a := newApp(bus.Consume("gated", func(context.Context, step) error {
			at.Add()
			return bus.Discard(errors.New("no"))
		}, bus.Ordered(bus.BlockKey), outbox.WithCircuit(&circuit)))
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(ctx, a.DB, stepsOf(3, "a")...))
		_ = circuit.Trip(errAway)
		r := a.StartWith(ctx, outbox.ProcessorConfig{Concurrency: 1})
		testapp.Sooner(t, "all ran", a.Empty)
		r.MustStop()
		for i, want := range []time.Duration{2, 4} {
			if got := at.At(i + 1).Sub(at.At(i)).Round(time.Second); got != want*time.Second {
				t.Errorf("run %d: got it %s after the one before, want it as a probe, after %s", i+2, got, want*time.Second)
			}
		}
	})
}

// TestAMessageThatNeverStartsReturnsItsProbe: messages that are late, erased, cannot be decoded or are stopped come
// before a good one. What the consumer needs is back, so that one runs at once.
// Promise: deadline
func TestAMessageThatNeverStartsReturnsItsProbe(t *testing.T) {
	for name, bad := range map[string]func(context.Context, *app){
		"late": func(ctx context.Context, a *app) {
			a.ProduceAt(ctx, order{ID: "bad"}, outbox.DeliverBy(time.Now().Add(time.Minute), bus.Discarded))
		},
		"late and poisoned": func(ctx context.Context, a *app) {
			a.ProduceAt(ctx, order{ID: "bad"}, outbox.DeliverBy(time.Now().Add(time.Minute), bus.Poisoned))
		},
		"undecodable": func(ctx context.Context, a *app) {
			a.ProduceAt(ctx, order{ID: "bad"})
			a.Exec(`UPDATE consumer_messages SET payload = '{"id":5}'`)
		},
		"erased": func(ctx context.Context, a *app) {
			a.ProduceAt(ctx, order{ID: "bad"})
			a.Exec(`UPDATE consumer_messages SET payload = '', headers = '{"asyncmonolith-event":"1 20"}'`)
		},
		"stopped": func(ctx context.Context, a *app) {
			if a.Count("SELECT count(*) FROM consumer_messages") < 3 { // each takes as long as the process needs to be told
				a.ProduceAt(ctx, order{ID: "stopped"})
			}
		},
	} {
		for _, with := range []string{"circuit", "breaker"} {
			t.Run(name+" behind a "+with, func(t *testing.T) {
				testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
					var circuit outbox.Circuit
					var runs atomic.Int64
					option := outbox.WithCircuit(&circuit)
					if with == "breaker" {
						option = bus.CircuitBreaker(bus.CircuitBreakerConfig{Cooldown: time.Minute})
					}
					a := newApp(bus.Consume("c", func(context.Context, order) error { runs.Add(1); return nil }, option))
					for range 50 {
						bad(ctx, a)
					}
					a.ProduceAt(ctx, order{ID: "good"})
					if _ = circuit.Trip(errAway); with == "breaker" {
						a.Exec("INSERT INTO message_breakers (name, half_since, opened, opened_at, open_until) VALUES ('c', ?, 1, ?, ?)",
							time.Now().UnixMicro(), time.Now().UnixMicro(), time.Now().Add(time.Minute).UnixMicro())
					}
					<-time.After(2 * time.Minute)
					began := time.Now()
					r := a.StartWith(ctx, outbox.ProcessorConfig{Middleware: append(middleware.Default(middleware.Options{}), stopsBeforeTheCall(a))})
					testapp.Sooner(t, "the good message ran", func() bool { return runs.Load() > 0 })
					if took := time.Since(began); took > 10*time.Second {
						t.Errorf("the good message ran after %s, want it within 10s", took)
					}
					testapp.Sooner(t, "all are done", a.Empty)
					r.MustStop()
				})
			})
		}
	}
}

// stopsBeforeTheCall has some messages stopped while a layer of theirs takes its time.
func stopsBeforeTheCall(a *app) bus.Middleware {
	return func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Message) error {
			if strings.Contains(string(m.Payload), `"stopped"`) {
				a.Exec("INSERT INTO message_stops (message_id, owner, asked_at) SELECT m.id, c.owner, c.claimed_at "+
					"FROM consumer_messages m, message_claims c WHERE m.message_id = ? AND c.id = (SELECT max(id) FROM message_claims)", m.ID)
				<-time.After(2 * time.Second) // a poll has seen it
			}
			return next(ctx, m)
		}
	}
}

// TestACircuitStopsTheGroupThatOpensIt: the members behind the one that trips it are given back without a call.
func TestACircuitStopsTheGroupThatOpensIt(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var circuit outbox.Circuit
		var away atomic.Bool
		var tries, since atomic.Int64
		away.Store(true)
		a := testapp.New(t, db, outbox.ConsumeTx("gated", func(context.Context, bun.Tx, order) error {
			if tries.Add(1); away.Load() {
				return circuit.Trip(errAway)
			}
			since.Add(1)
			return nil
		}, outbox.WithCircuit(&circuit), outbox.GroupCommit(20)))
		a.ProduceMany(20)
		r := a.Start(once())
		testapp.Eventually(t, "it is open, and all was given back", func() bool {
			_, _, open := circuit.Tripped()
			return open && a.Count("SELECT count(*) FROM message_claims") == 0
		})
		if n := tries.Load(); n > 5 {
			t.Errorf("calls while the other side is away: got %d, want one and a few probes", n)
		}
		away.Store(false)
		testapp.Eventually(t, "a probe closes the circuit", a.Empty)
		r.MustStop()
		if n := since.Load(); n != 20 {
			t.Errorf("calls since then: got %d, want one for each of 20 messages", n)
		}
	})
}
