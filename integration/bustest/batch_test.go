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

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestBatchesInAKit: what is due comes in one call, who has failed comes alone, and each message
// has its own outcome.
func TestBatchesInAKit(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var calls []string
		fail := true
		k := bustest.NewKit(t, db, bus.Consume("a", func(context.Context, OrderCharged) error { return nil }),
			bus.ConsumeBatch("c", func(_ context.Context, orders []OrderPlaced) error {
				calls = append(calls, joined(orders))
				for i, o := range orders {
					if o.ID == "2" && fail {
						return bus.BatchError{i: errAway}
					}
				}
				return nil
			}, bus.BatchSize(3), bus.BatchWait(time.Second)))
		for i := range 5 {
			k.Produce(OrderPlaced{fmt.Sprint(i)})
		}
		k.Produce(OrderPlaced{"later"}, outbox.Delay(time.Second))
		k.Produce(OrderCharged{"of another consumer"})
		if d := k.ProcessNext(); d.Outcome.Outcome != bus.Done || string(d.Message.Payload) != `{"id":"0"}` {
			t.Errorf("the first of the batch: got %+v, want 0, done", d)
		}
		equal(t, "one call", calls, []string{"0+1+2"})
		equal(t, "the rest", consumersOf(k.DrainUntilIdle()), []string{"c", "c", "a"})
		equal(t, "another call", calls, []string{"0+1+2", "3+4"})
		fail = false
		k.Advance(10 * time.Second)
		k.DrainUntilIdle()
		equal(t, "who failed comes alone", slices.Sorted(slices.Values(calls[2:])), []string{"2", "later"})
	})
}

// TestBatchesInTransactionsInAKit are committed as a whole: the rest is given to the function
// again at once.
func TestBatchesInTransactionsInAKit(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		createEffects(t, db)
		var calls []string
		k := bustest.NewKit(t, db, outbox.ConsumeBatchTx("c", func(ctx context.Context, tx bun.Tx, orders []OrderPlaced) error {
			calls = append(calls, joined(orders))
			if err := addEffect(ctx, tx, joined(orders)); err != nil {
				return err
			}
			if i := slices.IndexFunc(orders, func(o OrderPlaced) bool { return o.ID == "bad" }); i >= 0 {
				return bus.BatchError{i: bus.Permanent(errAway)}
			}
			return nil
		}))
		for _, id := range []string{"1", "bad", "2"} {
			k.Produce(OrderPlaced{id})
		}
		equal(t, "outcomes", outcomesOf(k.DrainUntilIdle()), []bus.Outcome{bus.Done, bus.Poisoned, bus.Done})
		equal(t, "calls", calls, []string{"1+2+bad", "1+2"})
		equal(t, "effects", effects(t, db), []string{"1+2"})
		bustest.RequirePoisoned(t, k, "c", func(o OrderPlaced) bool { return o.ID == "bad" })
	})
}

// TestRawMessagesInAKit come in batches, of several payload types.
func TestRawMessagesInAKit(t *testing.T) {
	t.Parallel()
	var calls []string
	k := bustest.NewKit(t, sqlite(t), bus.ConsumeRaw("forward", func(_ context.Context, batch []*bus.Message) error {
		var types []string
		for _, m := range batch {
			types = append(types, m.PayloadType)
		}
		slices.Sort(types)
		calls = append(calls, strings.Join(types, "+"))
		return nil
	}, []string{"order.placed", "order.charged"}))
	k.Produce(OrderPlaced{"1"})
	k.Produce(OrderCharged{"2"})
	if n := len(k.DrainUntilIdle()); n != 2 {
		t.Errorf("messages: got %d, want 2", n)
	}
	equal(t, "calls", calls, []string{"order.charged+order.placed"})
}

// TestChecksOfBatches run every message twice, and see what that changes.
func TestChecksOfBatches(t *testing.T) {
	t.Parallel()
	for name, check := range map[string]func(*bustest.Kit, func() any){
		"run twice": (*bustest.Kit).RequireIdempotent, "lost and redone": (*bustest.Kit).RequireRedeliverable,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				createEffects(t, db)
				once, runs := map[string]bool{}, 0
				var k *bustest.Kit
				k = bustest.NewKit(t, db, bus.ConsumeBatch("c", func(ctx context.Context, orders []OrderPlaced) error {
					runs += len(orders)
					for _, o := range orders {
						if !once[o.ID] {
							if _, err := k.Producer.Produce(ctx, db, OrderCharged(o)); err != nil {
								return err
							}
						}
						once[o.ID] = true
					}
					return nil
				}), outbox.ConsumeBatchTx("tx", func(ctx context.Context, tx bun.Tx, orders []OrderPlaced) error {
					return addEffect(ctx, tx, joined(orders))
				}), noting("other", new([]string)), bus.Consume("after", func(context.Context, OrderCharged) error { return nil }))
				for i := range 4 {
					k.Produce(OrderPlaced{fmt.Sprint(i)})
				}
				check(k, func() any { return len(once) })
				if runs != 8 {
					t.Errorf("got %d runs, want each of four messages to run twice", runs)
				}
				equal(t, "effects of the transaction", effects(t, db), []string{"0+1+2+3"})
			})
			wantFailure(t, func(t testing.TB) {
				db, calls := sqlite(t), 0
				k := bustest.NewKit(t, db, bus.ConsumeBatch("c", func(context.Context, []OrderPlaced) error { calls++; return nil }))
				k.Produce(OrderPlaced{"1"})
				k.Produce(OrderPlaced{"2"})
				check(k, func() any { return calls })
			}, "got the state 2, want it unchanged: 1")
		})
	}
}

// TestBatchesInOrderInAKit: one call has the messages of several keys, and those behind one that
// has failed come again.
func TestBatchesInOrderInAKit(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var calls []string
		fail := true
		k := bustest.NewKit(t, db, bus.ConsumeBatch("c", func(_ context.Context, orders []OrderPlaced) error {
			calls = append(calls, joined(orders))
			for i, o := range orders {
				if o.ID == "a2" && fail {
					return bus.BatchError{i: errAway}
				}
			}
			return nil
		}, bus.BatchSize(20), bus.Ordered(bus.BlockKey)))
		for _, id := range []string{"a1", "b1", "a2", "b2", "a3", "b3"} {
			k.Produce(OrderPlaced{id}, outbox.OrderingKey(id[:1]))
		}
		k.DrainUntilIdle()
		if len(calls) != 1 || calls[0] != "a1+a2+a3+b1+b2+b3" && calls[0] != "b1+b2+b3+a1+a2+a3" {
			t.Errorf("got the calls %v, want all in one, those of a key in their order", calls)
		}
		fail = false
		k.Advance(10 * time.Second)
		k.DrainUntilIdle()
		equal(t, "from who failed on", calls[1:], []string{"a2", "a3"})
	})
}

func TestATransactionThatIsRolledBackLeavesNothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var ran []string
		k := bustest.NewKit(t, db, noting("place", &ran))
		k.Produce(OrderPlaced{"before"})
		tx := testapp.Must[bun.Tx](t)(db.BeginTx(t.Context(), nil))
		testapp.OK(t, testapp.Second(k.Producer.Produce(t.Context(), tx, OrderPlaced{"inside"}, outbox.Header("tenant", "acme"))))
		mustSchedule(t, k, tx, OrderPlaced{"daily"}, "@daily")
		inside := func(o OrderPlaced) bool { return o.ID == "inside" }
		if m := bustest.RequireProduced(t, k.In(tx), inside); m.Headers["tenant"] != "acme" {
			t.Errorf("message: got %+v, want its header", m)
		}
		bustest.RequireProduced(t, k.In(&tx), func(o OrderPlaced) bool { return o.ID == "before" })
		bustest.RequireScheduled[OrderPlaced](t, k.In(tx), nil)
		wantFailure(t, func(t testing.TB) { bustest.RequireNotProduced(t, k.In(tx), inside) }, "got {ID:inside}")
		wantFailure(t, func(t testing.TB) { bustest.RequirePoisoned[OrderPlaced](t, k.In(tx), "place", nil) }, "poisoned: nothing")
		bustest.RequireNotProduced(t, k, inside)
		testapp.OK(t, tx.Rollback())
		bustest.RequireNotProduced(t, k, inside)
		wantFailure(t, func(t testing.TB) { bustest.RequireScheduled[OrderPlaced](t, k, nil) }, "schedules: nothing")
		k.DrainUntilIdle()
		equal(t, "ran", ran, []string{"before"})
	})
}

func TestTransactionalConsumersRunAsInProduction(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		createEffects(t, db)
		fail := errors.New("no luck")
		var k *bustest.Kit
		k = bustest.NewKit(t, db, outbox.ConsumeTx("reserve", func(ctx context.Context, tx bun.Tx, o OrderPlaced) error {
			if err := addEffect(ctx, tx, o.ID); err != nil {
				return err
			}
			if _, err := k.Producer.Produce(ctx, tx, OrderCharged(o)); err != nil {
				return err
			}
			if m, _ := bus.MessageFromContext(ctx); m.Attempt == 1 {
				return fail
			}
			return nil
		}), bus.Consume("ship", func(context.Context, OrderCharged) error { return nil }))
		k.Produce(OrderPlaced{"1"})
		d := k.ProcessNext()
		if d.Outcome.Outcome != bus.Retried || !errors.Is(d.Outcome.Err, fail) {
			t.Errorf("first attempt: got %+v, want it retried", d.Outcome)
		}
		equal(t, "effects of a failed attempt", effects(t, db), nil)
		bustest.RequireNotProduced[OrderCharged](t, k, nil)
		k.Advance(d.Outcome.Delay)
		equal(t, "runs", consumersOf(k.DrainUntilIdle()), []string{"reserve", "ship"})
		equal(t, "effects", effects(t, db), []string{"1"})
		bustest.RequireProduced[OrderCharged](t, k, nil)
	})
}
