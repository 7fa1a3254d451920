package bustest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/pending"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

var errAway = errors.New("the provider is away")

// outcomesOf lists what became of messages.
func outcomesOf(deliveries []bustest.Delivery) (outcomes []bus.Outcome) {
	for _, d := range deliveries {
		outcomes = append(outcomes, d.Outcome.Outcome)
	}
	return outcomes
}

// TestOrderInAKit: messages of a key come one after the other, and a poisoned one parks them or
// is skipped.
func TestOrderInAKit(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		var parks, skips []string
		fail := true
		run := func(ids *[]string) func(context.Context, OrderPlaced) error {
			return func(_ context.Context, o OrderPlaced) error {
				if fail && o.ID == "1" {
					return bus.Permanent(errAway)
				}
				*ids = append(*ids, o.ID)
				return nil
			}
		}
		k := bustest.NewKit(t, db, bus.Consume("parks", run(&parks), bus.Ordered(bus.BlockKey)),
			bus.Consume("skips", run(&skips), bus.Ordered(bus.SkipPoisoned)))
		if _, err := k.Producer.Produce(t.Context(), db, OrderPlaced{"0"}); !errors.Is(err, bus.ErrNoKey) {
			t.Errorf("without a key: got %v, want %v", err, bus.ErrNoKey)
		}
		for _, id := range []string{"1", "2", "3"} {
			k.Produce(OrderPlaced{id}, outbox.OrderingKey("k"))
		}
		k.Produce(OrderPlaced{"4"}, outbox.OrderingKey("another"))
		if m := bustest.RequireProduced(t, k, func(o OrderPlaced) bool { return o.ID == "2" }); m.OrderingKey != "k" {
			t.Errorf("what was produced: got the key %q, want k", m.OrderingKey)
		}
		k.DrainUntilIdle()
		slices.Sort(parks)
		equal(t, "while the key is parked", parks, []string{"4"})
		equal(t, "those that are skipped", slices.DeleteFunc(skips, func(id string) bool { return id == "4" }), []string{"2", "3"})
		keys, err := pending.NewReader(k.Registry).BlockedKeys(k.Context(), db, "", 10)
		if err != nil || len(keys) != 1 || keys[0].Key != "k" || keys[0].Waiting != 2 {
			t.Errorf("blocked keys: got %+v, %v, want k with two that wait", keys, err)
		}
		fail = false
		testapp.OK(t, testapp.Second(k.Poison.RequeueWhere(k.Context(), db, poison.Filter{Consumer: "parks"}, 10)))
		k.DrainUntilIdle()
		equal(t, "once it is requeued", parks, []string{"4", "1", "2", "3"})
	})
}

// TestAFailedMessageDelaysItsKeyInAKit until its next attempt, which Advance brings.
func TestAFailedMessageDelaysItsKeyInAKit(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		var ran []string
		k := bustest.NewKit(t, db, bus.Consume("c", func(ctx context.Context, o OrderPlaced) error {
			ran = append(ran, o.ID)
			if m, _ := bus.MessageFromContext(ctx); o.ID == "1" && m.Attempt == 1 {
				return errAway
			}
			return nil
		}, bus.Ordered(bus.BlockKey)))
		for _, id := range []string{"1", "2"} {
			k.Produce(OrderPlaced{id}, outbox.OrderingKey("k"))
		}
		k.DrainUntilIdle()
		equal(t, "before the next attempt", ran, []string{"1"})
		k.Advance(10 * time.Second)
		k.RequireIdempotent(nil)
		equal(t, "afterwards", ran, []string{"1", "1", "1", "2", "2"})
	})
}

// TestPrioritiesInAKit: what is urgent comes first, up to its head start.
func TestPrioritiesInAKit(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		var ran []string
		k := bustest.NewKit(t, db, noting("c", &ran, bus.Prioritized(time.Minute)))
		k.Produce(OrderPlaced{"old"})
		k.Advance(3 * time.Minute)
		k.Produce(OrderPlaced{"plain"})
		k.Advance(time.Second)
		k.Produce(OrderPlaced{"high"}, outbox.Priority(bus.High))
		k.Produce(OrderPlaced{"urgent"}, outbox.Priority(bus.Urgent))
		if m := bustest.RequireProduced(t, k, func(o OrderPlaced) bool { return o.ID == "urgent" }); m.Priority != bus.Urgent {
			t.Errorf("what was produced: got priority %d, want %d", m.Priority, bus.Urgent)
		}
		k.DrainUntilIdle()
		equal(t, "ran", ran, []string{"old", "urgent", "high", "plain"})
	})
}

// TestDeadlinesInAKit are on its clock.
func TestDeadlinesInAKit(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var ran []string
		k := bustest.KitConfig{Start: time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)}.NewKit(t, db, noting("c", &ran))
		k.Produce(OrderPlaced{"in time"}, outbox.DeliverBy(k.Now().Add(time.Hour), bus.Poisoned), outbox.Delay(time.Minute))
		k.Advance(time.Minute)
		k.DrainUntilIdle()
		k.Produce(OrderPlaced{"dropped"}, outbox.DeliverBy(k.Now().Add(time.Hour), bus.Discarded))
		k.Produce(OrderPlaced{"kept"}, outbox.DeliverBy(k.Now().Add(time.Hour), bus.Poisoned))
		k.Advance(time.Hour + time.Second)
		for _, d := range k.DrainUntilIdle() {
			if !errors.Is(d.Outcome.Err, bus.ErrExpired) {
				t.Errorf("verdict: got %+v, want %v", d.Outcome, bus.ErrExpired)
			}
		}
		equal(t, "ran", ran, []string{"in time"})
		bustest.RequirePoisoned(t, k, "c", func(o OrderPlaced) bool { return o.ID == "kept" })
	})
}

// TestInsertIDsInAKit: Replace, Debounce and UniqueFor are on its clock, too.
func TestInsertIDsInAKit(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		var ran []string
		k := bustest.NewKit(t, db, noting("c", &ran))
		k.Produce(OrderPlaced{"first"}, outbox.InsertID("a"))
		if r := k.Produce(OrderPlaced{"second"}, outbox.InsertID("a")); r.Duplicates != 1 {
			t.Errorf("a duplicate: got %+v, want it counted", r)
		}
		k.Produce(OrderPlaced{"older"}, outbox.InsertID("b", outbox.Replace()))
		k.Produce(OrderPlaced{"newer"}, outbox.InsertID("b", outbox.Replace()))
		k.DrainUntilIdle()
		equal(t, "at once", ran, []string{"first", "newer"})

		ran = nil
		for range 5 {
			k.Produce(OrderPlaced{fmt.Sprint("changed at ", k.Now().Second())}, outbox.InsertID("c", outbox.Debounce(10*time.Second, time.Minute)))
			k.Advance(9 * time.Second)
			equal(t, "before it is quiet", consumersOf(k.DrainUntilIdle()), nil)
		}
		k.Advance(time.Second)
		equal(t, "once it is quiet", consumersOf(k.DrainUntilIdle()), []string{"c"})

		k.Produce(OrderPlaced{"once"}, outbox.InsertID("d", outbox.UniqueFor(24*time.Hour)))
		k.DrainUntilIdle()
		k.Advance(23 * time.Hour)
		if r := k.Produce(OrderPlaced{"again"}, outbox.InsertID("d", outbox.UniqueFor(24*time.Hour))); r.Duplicates != 1 {
			t.Errorf("on the same day: got %+v, want a duplicate", r)
		}
		k.Advance(2 * time.Hour)
		k.Produce(OrderPlaced{"next day"}, outbox.InsertID("d", outbox.UniqueFor(24*time.Hour)))
		k.DrainUntilIdle()
		equal(t, "all", ran[1:], []string{"once", "next day"})
	})
}

// TestACircuitInAKit: nothing runs while it is open, no attempt is counted, and Reset has it go on.
func TestACircuitInAKit(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var circuit outbox.Circuit
		away, ran := true, []string{}
		k := bustest.NewKit(t, db, noting("other", &ran), bus.Consume("c", func(_ context.Context, o OrderPlaced) error {
			if away {
				return circuit.Trip(errAway)
			}
			ran = append(ran, "gated "+o.ID)
			return nil
		}, outbox.WithCircuit(&circuit)))
		k.Produce(OrderPlaced{"1"})
		k.Produce(OrderPlaced{"2"})
		if d := k.ProcessNext("c"); d.Outcome.Outcome != bus.Released || !errors.Is(d.Outcome.Err, errAway) {
			t.Errorf("verdict: got %+v, want it given back", d.Outcome)
		}
		k.DrainUntilIdle()
		equal(t, "while it is closed", ran, []string{"1", "2"})
		away = false
		circuit.Reset()
		if d := k.ProcessNext(); d.Message.Attempt != 1 {
			t.Errorf("once it is open: got attempt %d, want the first", d.Message.Attempt)
		}
		k.DrainUntilIdle()
		equal(t, "once it is open", ran, []string{"1", "2", "gated 1", "gated 2"})
	})
}

// TestACrashedMessageOfAKeyHidesNoOtherConsumer: ProcessNext with names looks at those consumers only.
func TestACrashedMessageOfAKeyHidesNoOtherConsumer(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		var ran []string
		k := bustest.NewKit(t, db, noting("plain", &ran), noting("keyed", &ran, bus.Ordered(bus.BlockKey)),
			bus.Consume("crashes", func(ctx context.Context, _ OrderCharged) error {
				_, err := outbox.Step(ctx, "charge", func(context.Context) (int, error) { return 1, nil })
				return err
			}, bus.Ordered(bus.BlockKey)))
		k.Produce(OrderCharged{"1"}, outbox.OrderingKey("k"))
		k.CrashAfterStep("charge", "crashes")
		k.Produce(OrderPlaced{"2"}, outbox.OrderingKey("k"))
		k.ProcessNext("plain")
		k.ProcessNext("keyed")
		equal(t, "beside a crashed message", ran, []string{"2", "2"})
		if d := k.ProcessNext(); d.Message.Consumer != "crashes" {
			t.Errorf("without names: got %+v, want the crashed message", d.Message)
		}
	})
}

// TestALockedMessageThatHasCrashedDelaysNoOther: ProcessNext runs what has not crashed.
func TestALockedMessageThatHasCrashedDelaysNoOther(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var ran []string
	k := bustest.NewKit(t, db, bus.Consume("c", func(ctx context.Context, o OrderPlaced) error {
		_, err := outbox.Step(ctx, "step", func(context.Context) (int, error) { return 1, nil })
		ran = append(ran, o.ID)
		return err
	}))
	k.Produce(OrderPlaced{"crashed"})
	k.CrashAfterStep("step")
	tx := testapp.Must[bun.Tx](t)(db.BeginTx(t.Context(), nil))
	defer tx.Rollback()
	testapp.OK(t, testapp.Second(tx.ExecContext(t.Context(), "SELECT 1 FROM consumer_messages FOR UPDATE")))
	k.Produce(OrderPlaced{"clean"})
	k.ProcessNext()
	equal(t, "while it is locked", ran, []string{"clean"})
	testapp.OK(t, tx.Rollback())
	k.ProcessNext()
	equal(t, "afterwards", ran, []string{"clean", "crashed"})
}

// TestAnOpenCircuitOfAConsumerWithKeysDelaysNoOther that has keys.
func TestAnOpenCircuitOfAConsumerWithKeysDelaysNoOther(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		var circuit outbox.Circuit
		var ran []string
		k := bustest.NewKit(t, db, bus.Consume("away", func(context.Context, OrderPlaced) error { return circuit.Trip(errAway) },
			outbox.WithCircuit(&circuit), bus.Ordered(bus.BlockKey)), noting("other", &ran, bus.Ordered(bus.BlockKey)))
		k.Produce(OrderPlaced{"1"}, outbox.OrderingKey("k"))
		k.Produce(OrderPlaced{"2"}, outbox.OrderingKey("l"))
		equal(t, "outcome", outcomesOf([]bustest.Delivery{k.ProcessNext("away")}), []bus.Outcome{bus.Released})
		k.DrainUntilIdle() // a probe may run beside them
		equal(t, "ran", ran, []string{"1", "2"})
	})
}

// TestABreakerInAKit opens, and lets a message probe when Advance has brought the end of its
// cooldown.
func TestABreakerInAKit(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		away := true
		k := bustest.NewKit(t, db, bus.Consume("c", func(context.Context, OrderPlaced) error {
			if away {
				return errAway
			}
			return nil
		}, bus.CircuitBreaker(bus.CircuitBreakerConfig{MinRequests: 3, FailureRatio: 1, Cooldown: 20 * time.Second}), bus.MaxAttempts(2)))
		for i := range 5 {
			k.Produce(OrderPlaced{fmt.Sprint(i)})
		}
		equal(t, "until it opens", outcomesOf(k.DrainUntilIdle()), []bus.Outcome{bus.Retried, bus.Retried, bus.Retried})
		k.Advance(19 * time.Second)
		equal(t, "while it is open", consumersOf(k.DrainUntilIdle()), nil)
		k.Advance(time.Second)
		equal(t, "a probe", outcomesOf(k.DrainUntilIdle()), []bus.Outcome{bus.Released})
		away = false
		k.Advance(20 * time.Second)
		equal(t, "before the next, which is twice as long", consumersOf(k.DrainUntilIdle()), nil)
		k.Advance(20 * time.Second)
		if n := len(k.DrainUntilIdle()); n != 5 {
			t.Errorf("a probe that is done, and the others: got %d, want 5", n)
		}
	})
}

// TestLimitsAndRatesInAKit: a limit never stands in the way of one run after the other, and a rate
// lets messages start with Advance.
func TestLimitsAndRatesInAKit(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var ran []string
		k := bustest.NewKit(t, db, noting("limited", &ran, bus.SharedConcurrency("l", 1)),
			noting("limited too", &ran, bus.SharedConcurrency("l", 1)),
			noting("rated", &ran, bus.RateLimit(2, time.Minute, 2)), noting("plain", &ran))
		for i := range 5 {
			k.Produce(OrderPlaced{fmt.Sprint(i)})
		}
		equal(t, "at once", slices.Sorted(slices.Values(consumersOf(k.DrainUntilIdle()))),
			slices.Concat(slices.Repeat([]string{"limited"}, 5), slices.Repeat([]string{"limited too"}, 5),
				slices.Repeat([]string{"plain"}, 5), slices.Repeat([]string{"rated"}, 2)))
		k.Advance(29 * time.Second)
		equal(t, "before the next may start", consumersOf(k.DrainUntilIdle()), nil)
		k.Advance(time.Second)
		equal(t, "half a minute later", consumersOf(k.DrainUntilIdle()), []string{"rated"})
		k.Advance(time.Hour)
		equal(t, "after a rest", consumersOf(k.DrainUntilIdle()), []string{"rated", "rated"})
	})
}

// TestKeysInAnyOrderInAKit: bounds are never reached, and rates of keys are on its clock.
func TestKeysInAnyOrderInAKit(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		var bound, fair, rated []string
		k := bustest.NewKit(t, db, noting("bound", &bound, bus.KeyConcurrency(1)), noting("fair", &fair, bus.Fair()),
			noting("rated", &rated, bus.KeyRateLimit(1, time.Minute, 1)))
		for n := range 4 {
			k.Produce(OrderPlaced{fmt.Sprint(n)}, outbox.OrderingKey(fmt.Sprint("k", n%2)))
		}
		k.DrainUntilIdle()
		if len(bound) != 4 || len(fair) != 4 || len(rated) != 2 {
			t.Errorf("got %v, %v and %v, want all, all and one of each key", bound, fair, rated)
		}
		k.Advance(time.Minute)
		k.DrainUntilIdle()
		if len(rated) != 4 {
			t.Errorf("a minute later: got %v, want all", rated)
		}
	})
}

// TestDeclaredConsumersInAKit have their messages written, and nobody runs them.
func TestDeclaredConsumersInAKit(t *testing.T) {
	t.Parallel()
	var ran []string
	db := sqlite(t)
	k := bustest.NewKit(t, db, noting("own", &ran), bus.Declare[OrderPlaced]("index"))
	if r := k.Produce(OrderPlaced{"1"}); r.Enqueued != 2 {
		t.Errorf("receipt: got %+v, want two", r)
	}
	equal(t, "runs", consumersOf(k.DrainUntilIdle()), []string{"own"})
	if n, err := k.Admin.Count(k.Context(), db, admin.Filter{Consumer: "index"}); err != nil || n != 1 {
		t.Errorf("messages for the other program: got %d, %v, want one", n, err)
	}
}

func joined(orders []OrderPlaced) string {
	var ids []string
	for _, o := range orders {
		ids = append(ids, o.ID)
	}
	slices.Sort(ids)
	return strings.Join(ids, "+")
}
