package poison_test

import (
	"context"
	"database/sql"
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
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// numbers lists 1 to n.
func numbers(n int) []int64 {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = int64(i + 1)
	}
	return ids
}

// TestRequeueDoesNotDeadlockWithProducers has the same keys requeued and produced
// at the same time, in whatever order they were poisoned.
func TestRequeueDoesNotDeadlockWithProducers(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var n atomic.Int64
	const keys = 100
	a, s := testapp.NewPoisoned(t, db, keys, testapp.Counting("c", &n))
	a.Exec("UPDATE poisoned_messages SET insert_id = 'k' || lpad((? - id)::text, 3, '0')", keys)
	a.Exec("CREATE TABLE before AS SELECT * FROM poisoned_messages")
	for round := range 8 {
		a.Exec("DELETE FROM consumer_messages")
		a.Exec("DELETE FROM poisoned_messages")
		a.Exec("INSERT INTO poisoned_messages SELECT * FROM before")
		var both sync.WaitGroup
		both.Go(func() {
			if _, err := s.Requeue(context.WithoutCancel(t.Context()), db, numbers(keys)...); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
		})
		both.Go(func() {
			// Whatever the default: in a stricter one a conflict would be ours to retry.
			options := &sql.TxOptions{Isolation: sql.LevelReadCommitted}
			err := db.RunInTx(context.WithoutCancel(t.Context()), options, func(ctx context.Context, tx bun.Tx) error {
				for i := range keys {
					if _, err := a.Producer.Produce(ctx, tx, order{}, outbox.InsertID(fmt.Sprintf("k%03d", i))); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Errorf("round %d: the business transaction: %v", round, err)
			}
		})
		both.Wait()
		if got := a.Count("SELECT count(*) FROM consumer_messages"); got != keys {
			t.Fatalf("round %d: got %d messages, want one for each of %d keys", round, got, keys)
		}
	}
}

// TestDiscardAndRequeueDoNotDeadlock has both work on rows that are stored in
// another order than that of their ids.
func TestDiscardAndRequeueDoNotDeadlock(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var n atomic.Int64
	a, s := testapp.NewPoisoned(t, db, 300, testapp.Counting("c", &n))
	a.Exec("CREATE TABLE backwards AS SELECT * FROM poisoned_messages ORDER BY id DESC")
	a.Exec("DELETE FROM poisoned_messages")
	a.Exec("INSERT INTO poisoned_messages SELECT * FROM backwards ORDER BY id DESC")
	undo := errors.New("undo")
	for round := range 20 {
		var both sync.WaitGroup
		for what, work := range map[string]func(ctx context.Context, tx bun.Tx) error{
			"discard": func(ctx context.Context, tx bun.Tx) error { return testapp.Second(s.Discard(ctx, tx, numbers(300)...)) },
			"requeue": func(ctx context.Context, tx bun.Tx) error { return testapp.Second(s.Requeue(ctx, tx, numbers(300)...)) },
		} {
			both.Go(func() {
				err := db.RunInTx(context.WithoutCancel(t.Context()), nil, func(ctx context.Context, tx bun.Tx) error {
					return errors.Join(work(ctx, tx), undo)
				})
				if joined, ok := err.(interface{ Unwrap() []error }); !ok || len(joined.Unwrap()) != 1 {
					t.Errorf("round %d: %s: got %v, want no error", round, what, err)
				}
			})
		}
		both.Wait()
	}
}

func TestRequeueWhereLeavesAloneWhatItHasRequeued(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t) // where a batch can wait for the one before it to run
	const messages = 700
	var runs atomic.Int64
	a, s := testapp.NewPoisoned(t, db, messages, bus.Consume("c", func(context.Context, order) error {
		runs.Add(1)
		return bus.Permanent(errors.New("still broken"))
	}))
	// Poisoned again between the two batches.
	hooked := db.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) {
		if strings.Contains(query, `"id" > 500`) || strings.Contains(query, "id > 500") {
			testapp.Eventually(t, "the first batch is poisoned again", func() bool { return runs.Load() >= 500 })
		}
	}))
	r := a.Start(testapp.Fast())
	result := testapp.Must[poison.Result](t)(s.RequeueWhere(t.Context(), hooked, poison.Filter{Consumer: "c"}, 10*messages))
	if want := (poison.Result{Requeued: messages}); result != want {
		t.Errorf("requeue: got %+v, want %+v", result, want)
	}
	testapp.Eventually(t, "all are poisoned again", func() bool { return runs.Load() == messages && len(a.Poisoned()) == messages })
	r.MustStop()
}

func TestPurgeGoesOnPastWhatOthersDelete(t *testing.T) {
	t.Parallel()
	for _, isolation := range testdb.Isolations() {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			db := testdb.OpenPostgres(t, testdb.PostgresDSN(t, testdb.Isolation(isolation)))
			var n atomic.Int64
			a, s := testapp.NewPoisoned(t, db, 1200, testapp.Counting("c", &n))
			tx := testapp.Must[bun.Tx](t)(db.BeginTx(t.Context(), nil))
			testapp.Must[int](t)(s.Discard(t.Context(), tx, 7))
			purged := make(chan error)
			go func() { purged <- testapp.Second(s.Purge(context.WithoutCancel(t.Context()), db, 0)) }()
			testapp.Eventually(t, "it waits for the row", func() bool {
				return a.Count("SELECT count(*) FROM pg_locks l JOIN pg_stat_activity s USING (pid) WHERE NOT granted AND datname = current_database()") > 0
			})
			testapp.OK(t, errors.Join(tx.Commit(), <-purged))
			if left := len(a.Poisoned()); left != 0 {
				t.Errorf("left: got %d, want none", left)
			}
		})
	}
}

// TestFiltersThatNothingCanMatch: such a text must not reach the database, where
// it would abort the caller's transaction.
func TestFiltersThatNothingCanMatch(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a, p := testapp.NewPoisoned(t, db, 2, testapp.Counting("c", &n))
		s := a.Scheduler()
		tx := testapp.Must[bun.Tx](t)(db.BeginTx(t.Context(), nil))
		defer tx.Rollback() //nolint:errcheck // nothing was written
		ctx := t.Context()
		for _, text := range []string{"a\x00b", "a\xff"} {
			for what, err := range map[string]error{
				"delete by tag":      testapp.Second(s.DeleteByTag(ctx, tx, text)),
				"list by name":       testapp.Third(s.List(ctx, tx, schedule.Filter{Name: text}, admin.Page{})),
				"list by tag":        testapp.Third(s.List(ctx, tx, schedule.Filter{Tag: text}, admin.Page{})),
				"count by error":     testapp.Second(p.Count(ctx, tx, poison.Filter{Error: text})),
				"count by consumer":  testapp.Second(p.Count(ctx, tx, poison.Filter{Consumer: text})),
				"requeue by payload": testapp.Second(p.RequeueWhere(ctx, tx, poison.Filter{PayloadType: text}, 1)),
			} {
				if !errors.Is(err, bus.ErrInvalidText) {
					t.Errorf("%s %q: got %v, want ErrInvalidText", what, text, err)
				}
			}
			if _, _, err := p.List(ctx, tx, poison.Filter{Error: text}, admin.Page{}); !errors.Is(err, bus.ErrInvalidText) {
				t.Errorf("list by error %q: got %v, want ErrInvalidText", text, err)
			}
		}
		if _, err := tx.ExecContext(ctx, "SELECT 1"); err != nil {
			t.Errorf("the caller's transaction: got %v, want it usable", err)
		}
	})
}

// TestRequeueKnowsRenamedConsumers: a message goes to its consumer under the name
// that it has now, where its key may be pending already.
func TestRequeueKnowsRenamedConsumers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a, s := testapp.NewPoisoned(t, db, 3, testapp.Counting("c", &n, bus.Aliases("former")))
		a.Exec("UPDATE poisoned_messages SET consumer_type = 'former', insert_id = CASE id WHEN 2 THEN 'k2' ELSE 'k1' END")
		a.Produce(order{}, outbox.InsertID("k2"))
		result := testapp.Must[poison.Result](t)(s.Requeue(t.Context(), db, 1, 2, 3))
		if want := (poison.Result{Requeued: 1, Conflicts: 2}); result != want {
			t.Errorf("requeue: got %+v, want %+v: one is pending, and two have one key", result, want)
		}
		for _, m := range a.Pending() {
			if m.ConsumerType != "c" {
				t.Errorf("consumer: got %q, want the name it has now", m.ConsumerType)
			}
		}
	})
}

func TestAFailedEditChangesNothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a, s := testapp.NewPoisoned(t, db, 1, testapp.Counting("c", &n))
		a.Exec("UPDATE poisoned_messages SET insert_id = 'k'")
		a.Produce(order{}, outbox.InsertID("k"))
		tx := testapp.Must[bun.Tx](t)(db.BeginTx(t.Context(), nil))
		if err := s.EditAndRequeue(t.Context(), tx, 1, order{ID: "edited"}); !errors.Is(err, poison.ErrConflict) {
			t.Errorf("edit: got %v, want ErrConflict", err)
		}
		testapp.OK(t, tx.Commit())
		if got := a.Poisoned()[0].Payload; strings.Contains(got, "edited") {
			t.Errorf("payload: got %s, want it as it was", got)
		}
	})
}

func TestStatsSeeCrashedMessages(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := testapp.New(t, db, testapp.Counting("c", &n))
		a.Produce(order{})
		a.Exec("UPDATE consumer_messages SET crashes = 1")
		p := testapp.Must[*outbox.Processor](t)(outbox.NewProcessor(db, a.Registry, outbox.ProcessorConfig{}))
		testapp.Eventually(t, "the message has an age", func() bool {
			q := testapp.Must[[]admin.Queue](t)(p.Queues(t.Context()))[0]
			return q.Ready == 1 && q.OldestReady > time.Millisecond
		})
	})
}

// TestRequeueInAnOldSnapshot requeues, in a transaction of the caller's, a message that
// was poisoned after its snapshot was taken. Message 2 meets a pending insert id.
func TestRequeueInAnOldSnapshot(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	a, s := testapp.NewPoisoned(t, testdb.OldSnapshots(t), 2, testapp.Counting("c", &n))
	a.Exec("UPDATE poisoned_messages SET insert_id = CONCAT('k', id)")
	a.Exec("CREATE TABLE later AS SELECT * FROM poisoned_messages")
	a.Exec("DELETE FROM poisoned_messages")
	a.Produce(order{}, outbox.InsertID("k2"))
	tx := testapp.Must[bun.Tx](t)(a.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead}))
	defer func() { _ = tx.Rollback() }()
	testapp.OK(t, testapp.Second(tx.NewSelect().TableExpr("poisoned_messages").Count(t.Context())))
	a.Exec("INSERT INTO poisoned_messages SELECT * FROM later")
	want := poison.Result{Requeued: 1, Conflicts: 1}
	if result, err := s.Requeue(t.Context(), tx, 1, 2); err != nil || result != want {
		t.Errorf("requeue: got %+v and %v, want %+v", result, err, want)
	}
	testapp.OK(t, tx.Commit())
	if receipt := a.Produce(order{}, outbox.InsertID("k1")); receipt.Duplicates != 1 {
		t.Errorf("produce with the insert id of what was requeued: got %+v, want a duplicate", receipt)
	}
	if pending, poisoned := len(a.Pending()), len(a.Poisoned()); pending != 2 || poisoned != 1 {
		t.Errorf("got %d messages pending and %d poisoned, want 2 and 1", pending, poisoned)
	}
}
