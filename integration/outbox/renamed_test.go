package outbox_test

import (
	"context"
	"errors"
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
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// renamedApps are a program before and after a consumer was renamed; another consumer
// of the payload keeps its name.
func renamedApps(t *testing.T, db *bun.DB, runs *atomic.Int64) (before, after *app) {
	t.Helper()
	return testapp.New(t, db, testapp.Counting("old", runs), testapp.Counting("other", runs)),
		testapp.New(t, db, testapp.Counting("new", runs, bus.Aliases("old", "older")), testapp.Counting("other", runs))
}

// keysWithoutMessage counts what is left of insert ids where they have a table of
// their own.
func keysWithoutMessage(a *app) int {
	a.Helper()
	if a.DB.Dialect().Name() != dialect.MySQL {
		return 0
	}
	return a.Count("SELECT count(*) FROM pending_insert_ids k LEFT JOIN consumer_messages m ON m.id = k.id WHERE m.id IS NULL")
}

// Promise: insert-id
func TestARenamedConsumersInsertIDIsPendingOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var runs atomic.Int64
		before, after := renamedApps(t, db, &runs)
		before.Produce(order{ID: "1"}, outbox.InsertID("k"))
		if got := after.Produce(order{ID: "2"}, outbox.InsertID("k")); got.Enqueued != 0 || got.Duplicates != 2 {
			t.Errorf("produce what is pending under the former name: got %+v, want 2 duplicates", got)
		}
		receipts := testapp.Must[[]outbox.Receipt](t)(after.Producer.ProduceMany(t.Context(), db,
			outbox.Item{Payload: order{ID: "3"}},
			outbox.Item{Payload: order{ID: "4"}, Options: []outbox.Option{outbox.InsertID("j")}},
			outbox.Item{Payload: order{ID: "5"}, Options: []outbox.Option{outbox.InsertID("k")}},
			outbox.Item{Payload: order{ID: "6"}, Options: []outbox.Option{outbox.InsertID("j")}}))
		for i, want := range []int{2, 2, 0, 0} {
			if receipts[i].Enqueued != want || receipts[i].Duplicates != 2-want {
				t.Errorf("item %d: got %+v, want %d enqueued", i, receipts[i], want)
			}
		}
		if got := len(after.Pending()); got != 6 || keysWithoutMessage(after) != 0 {
			t.Errorf("messages: got %d, and %d insert ids without one, want 6 and none", got, keysWithoutMessage(after))
		}
		r := after.Start(testapp.Fast())
		testapp.Eventually(t, "all are consumed", after.Empty)
		r.MustStop()
		if got := after.Produce(order{ID: "7"}, outbox.InsertID("k")); got.Enqueued != 2 {
			t.Errorf("produce once it was consumed: got %+v, want 2 enqueued", got)
		}
	})
}

// TestARenamedConsumersInsertIDWaitsForTheOldProgram produces while a program of before
// the rename has produced the same, and not committed yet.
func TestARenamedConsumersInsertIDWaitsForTheOldProgram(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) *bun.DB{"postgres": testdb.Postgres} { // MariaDB does not wait, see freeKeys
		for outcome, commits := range map[string]bool{"commits": true, "rolls back": false} {
			t.Run(name+" "+outcome, func(t *testing.T) {
				t.Parallel()
				var runs atomic.Int64
				before, after := renamedApps(t, open(t), &runs)
				tx := testapp.Must[bun.Tx](t)(before.DB.BeginTx(t.Context(), nil))
				defer func() { _ = tx.Rollback() }()
				testapp.Must[outbox.Receipt](t)(before.Producer.Produce(t.Context(), tx, order{ID: "1"}, outbox.InsertID("k")))
				done := make(chan outbox.Receipt, 1)
				failed := make(chan error, 1)
				go func() {
					got, err := after.Producer.Produce(context.WithoutCancel(t.Context()), after.DB, order{ID: "2"}, outbox.InsertID("k"))
					failed <- err
					done <- got
				}()
				select {
				case err := <-failed:
					t.Errorf("it did not wait: %v", err)
				case <-time.After(300 * time.Millisecond):
				}
				want := 2
				if commits {
					want = 0
					testapp.OK(t, tx.Commit())
				} else if err := tx.Rollback(); err != nil {
					t.Fatal(err)
				}
				testapp.OK(t, <-failed)
				if got := <-done; got.Enqueued != want {
					t.Errorf("produce: got %+v, want %d enqueued", got, want)
				}
				if got := len(after.Pending()); got != 2 {
					t.Errorf("messages: got %d, want 2", got)
				}
			})
		}
	}
}

func TestARenamedConsumersPoisonedMessageIsNoSecondOne(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var runs atomic.Int64
		before := testapp.New(t, db, bus.Consume("old", func(context.Context, order) error { return bus.Permanent(errors.New("no luck")) }))
		after := testapp.New(t, db, testapp.Counting("new", &runs, bus.Aliases("old")))
		before.Produce(order{ID: "1"}, outbox.InsertID("k"))
		r := before.Start(testapp.Fast())
		testapp.Eventually(t, "it is poisoned", func() bool { return len(before.Poisoned()) == 1 })
		r.MustStop()
		before.Produce(order{ID: "2"}, outbox.InsertID("k"))
		store := testapp.Must[*poison.Store](t)(poison.NewStore(after.Registry))
		if got := testapp.Must[poison.Result](t)(store.RequeueWhere(t.Context(), db, poison.Filter{}, 10)); got.Conflicts != 1 ||
			got.Requeued != 0 {
			t.Errorf("requeue what is pending under the former name: got %+v, want a conflict", got)
		}
		if err := store.EditAndRequeue(t.Context(), db, testapp.Must[[]poison.Message](t)(listPoisoned(t.Context(), store, db))[0].ID,
			order{}); !errors.Is(err, poison.ErrConflict) {
			t.Errorf("edit: got %v, want ErrConflict", err)
		}
		after.Exec("DELETE FROM consumer_messages")
		if db.Dialect().Name() == dialect.MySQL {
			after.Exec("DELETE FROM pending_insert_ids")
		}
		if got := testapp.Must[poison.Result](t)(store.RequeueWhere(t.Context(), db, poison.Filter{}, 10)); got.Requeued != 1 {
			t.Errorf("requeue: got %+v, want it requeued", got)
		}
	})
}

func listPoisoned(ctx context.Context, store *poison.Store, db *bun.DB) ([]poison.Message, error) {
	messages, _, err := store.List(ctx, db, poison.Filter{}, admin.Page{})
	return messages, err
}

// TestRenamedConsumersDoNotDeadlock has producers of before and after a rename, and of one
// that was taken back, produce the same few insert ids in transactions of their own.
func TestRenamedConsumersDoNotDeadlock(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var runs atomic.Int64
		// The name of another consumer is between the two: its insert ids are locked in the same order.
		another := testapp.Counting("nz", &runs)
		before := testapp.New(t, db, testapp.Counting("old", &runs), another)
		after := testapp.New(t, db, testapp.Counting("new", &runs, bus.Aliases("old", "older")), another)
		back := testapp.New(t, db, testapp.Counting("old", &runs, bus.Aliases("new")), another)
		errs := make(chan error)
		const producers, rounds = 6, 60
		for p := range producers {
			a := []*app{before, after, back}[p%3]
			go func() {
				for i := range rounds {
					key := outbox.InsertID(string(rune('a' + (i*(p+1))%20)))
					errs <- a.Producer.RunInTx(context.WithoutCancel(t.Context()), db, func(ctx context.Context, tx bun.Tx) error {
						_, err := a.Producer.Produce(ctx, tx, order{}, key)
						return err
					})
				}
			}()
		}
		for range producers * rounds {
			if err := <-errs; err != nil {
				t.Errorf("produce: %v", err)
			}
		}
	})
}

// acrossARename is a rolling deploy in which the consumer "older" has become "new".
func acrossARename(
	t *testing.T, db *bun.DB, consume func(context.Context, order) error, option bus.ConsumerOption,
) (before, after *app) {
	t.Helper()
	return testapp.New(t, db, bus.Consume("older", consume, option)),
		testapp.New(t, db, bus.Consume("new", consume, option, bus.Aliases("old", "older")))
}

// TestALimitHoldsOverARename, and is shown under the name that each program has.
func TestALimitHoldsOverARename(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var at gauge
		a, b := acrossARename(t, db, at.work(20*time.Millisecond), bus.GlobalConcurrency(1))
		a.ProduceMany(40)
		b.ProduceMany(10)
		one, two := a.Start(testapp.Fast()), b.Start(testapp.Fast())
		testapp.Eventually(t, "it is shown", func() bool { _, ok := two.Stats().Limits["new"]; return ok })
		testapp.Eventually(t, "all ran", a.Empty)
		one.MustStop()
		two.MustStop()
		if at.most.Load() != 1 || at.runs.Load() != 50 {
			t.Errorf("got %d runs, %d at once, want 50, one at a time", at.runs.Load(), at.most.Load())
		}
	})
}

// TestExplainShowsALimitByThePresentName, though it is stored under the oldest.
func TestExplainShowsALimitByThePresentName(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		_, b := acrossARename(t, db, func(context.Context, order) error { return nil }, bus.GlobalConcurrency(1))
		b.ProduceMany(1)
		b.Exec("INSERT INTO message_slots (name, n, owner, leased_until) SELECT 'older', 1, 'other', " + testapp.In(db, time.Minute))
		e := testapp.Must[admin.Explanation](t)(b.Admin().Explain(t.Context(), db, b.Pending()[0].ID))
		if e.Reason != admin.Limited || !strings.Contains(e.Text, `limit "new" of 1 is reached by owner other (1)`) {
			t.Errorf("Explain: got %s %s", e.Reason, e.Text)
		}
	})
}

func TestARateHoldsOverARename(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) { rateOverARename(t, db, bus.RateLimit(10, time.Second, 1)) })
}

func TestAKeyRateHoldsOverARename(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) { // MariaDB has no key rates
		rateOverARename(t, db, bus.KeyRateLimit(10, time.Second, 1))
	})
}

// rateOverARename has both programs run messages of one key at 10/s together.
func rateOverARename(t *testing.T, db *bun.DB, rate bus.ConsumerOption) {
	t.Helper()
	const n = 16
	var at testapp.Moments
	a, b := acrossARename(t, db, func(context.Context, order) error { at.Add(); return nil }, rate)
	for i := range n {
		of := []*app{a, b}[i%2]
		of.Produce(order{ID: "1"}, outbox.OrderingKey("k"))
	}
	one, two := a.Start(testapp.Fast()), b.Start(testapp.Fast())
	testapp.Eventually(t, "all ran", a.Empty)
	one.MustStop()
	two.MustStop()
	if took := at.At(n - 1).Sub(at.At(0)); took < (n-2)*100*time.Millisecond {
		t.Errorf("%d started in %s, want 10 a second", n, took)
	}
}
