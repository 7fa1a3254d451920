package integration_test

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

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// Tests of what an attack on poisoned messages found.

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
	a, s := poisonedApp(t, db, keys, counting("c", &n))
	a.exec("UPDATE poisoned_messages SET insert_id = 'k' || lpad((? - id)::text, 3, '0')", keys)
	a.exec("CREATE TABLE before AS SELECT * FROM poisoned_messages")
	for round := range 8 {
		a.exec("DELETE FROM consumer_messages")
		a.exec("DELETE FROM poisoned_messages")
		a.exec("INSERT INTO poisoned_messages SELECT * FROM before")
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
					if _, err := a.producer.Produce(ctx, tx, order{}, outbox.InsertID(fmt.Sprintf("k%03d", i))); err != nil {
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
		if got := a.count("SELECT count(*) FROM consumer_messages"); got != keys {
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
	a, s := poisonedApp(t, db, 300, counting("c", &n))
	a.exec("CREATE TABLE backwards AS SELECT * FROM poisoned_messages ORDER BY id DESC")
	a.exec("DELETE FROM poisoned_messages")
	a.exec("INSERT INTO poisoned_messages SELECT * FROM backwards ORDER BY id DESC")
	undo := errors.New("undo")
	for round := range 20 {
		var both sync.WaitGroup
		for what, work := range map[string]func(ctx context.Context, tx bun.Tx) error{
			"discard": func(ctx context.Context, tx bun.Tx) error { return second(s.Discard(ctx, tx, numbers(300)...)) },
			"requeue": func(ctx context.Context, tx bun.Tx) error { return second(s.Requeue(ctx, tx, numbers(300)...)) },
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
	a, s := poisonedApp(t, db, messages, bus.Consume("c", func(context.Context, order) error {
		runs.Add(1)
		return bus.Permanent(errors.New("still broken"))
	}))
	// Poisoned again between the two batches.
	hooked := db.WithQueryHook(queryHook{func(_ context.Context, query string) {
		if strings.Contains(query, `"id" > 500`) || strings.Contains(query, "id > 500") {
			eventually(t, "the first batch is poisoned again", func() bool { return runs.Load() >= 500 })
		}
	}})
	r := a.start(fast())
	result := must[poison.Result](t)(s.RequeueWhere(t.Context(), hooked, poison.Filter{Consumer: "c"}, 10*messages))
	if want := (poison.Result{Requeued: messages}); result != want {
		t.Errorf("requeue: got %+v, want %+v", result, want)
	}
	eventually(t, "all are poisoned again", func() bool { return runs.Load() == messages && len(a.poisoned()) == messages })
	r.mustStop()
}

func TestPurgeGoesOnPastWhatOthersDelete(t *testing.T) {
	t.Parallel()
	for _, isolation := range isolations() {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			db := testdb.OpenPostgres(t, testdb.PostgresDSN(t, testdb.Isolation(isolation)))
			var n atomic.Int64
			a, s := poisonedApp(t, db, 1200, counting("c", &n))
			tx := must[bun.Tx](t)(db.BeginTx(t.Context(), nil))
			must[int](t)(s.Discard(t.Context(), tx, 7))
			purged := make(chan error)
			go func() { purged <- second(s.Purge(context.WithoutCancel(t.Context()), db, 0)) }()
			eventually(t, "it waits for the row", func() bool {
				return a.count("SELECT count(*) FROM pg_locks l JOIN pg_stat_activity s USING (pid) WHERE NOT granted AND datname = current_database()") > 0
			})
			if err := errors.Join(tx.Commit(), <-purged); err != nil {
				t.Fatal(err)
			}
			if left := len(a.poisoned()); left != 0 {
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
		a, p := poisonedApp(t, db, 2, counting("c", &n))
		s := a.scheduler()
		tx := must[bun.Tx](t)(db.BeginTx(t.Context(), nil))
		defer tx.Rollback() //nolint:errcheck // nothing was written
		ctx := t.Context()
		for _, text := range []string{"a\x00b", "a\xff"} {
			for what, err := range map[string]error{
				"delete by tag":      second(s.DeleteByTag(ctx, tx, text)),
				"list by name":       second(s.List(ctx, tx, schedule.Filter{Name: text})),
				"list by tag":        second(s.List(ctx, tx, schedule.Filter{Tag: text})),
				"count by error":     second(p.Count(ctx, tx, poison.Filter{Error: text})),
				"count by consumer":  second(p.Count(ctx, tx, poison.Filter{Consumer: text})),
				"requeue by payload": second(p.RequeueWhere(ctx, tx, poison.Filter{PayloadType: text}, 1)),
			} {
				if !errors.Is(err, bus.ErrBadText) {
					t.Errorf("%s %q: got %v, want ErrBadText", what, text, err)
				}
			}
			if _, _, err := p.List(ctx, tx, poison.Filter{Error: text}, outbox.Page{}); !errors.Is(err, bus.ErrBadText) {
				t.Errorf("list by error %q: got %v, want ErrBadText", text, err)
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
		a, s := poisonedApp(t, db, 3, counting("c", &n, bus.Aliases("former")))
		a.exec("UPDATE poisoned_messages SET consumer_type = 'former', insert_id = CASE id WHEN 2 THEN 'k2' ELSE 'k1' END")
		a.produce(order{}, outbox.InsertID("k2"))
		result := must[poison.Result](t)(s.Requeue(t.Context(), db, 1, 2, 3))
		if want := (poison.Result{Requeued: 1, Conflicts: 2}); result != want {
			t.Errorf("requeue: got %+v, want %+v: one is pending, and two have one key", result, want)
		}
		for _, m := range a.pending() {
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
		a, s := poisonedApp(t, db, 1, counting("c", &n))
		a.exec("UPDATE poisoned_messages SET insert_id = 'k'")
		a.produce(order{}, outbox.InsertID("k"))
		tx := must[bun.Tx](t)(db.BeginTx(t.Context(), nil))
		if err := s.EditAndRequeue(t.Context(), tx, 1, order{ID: "edited"}); !errors.Is(err, poison.ErrConflict) {
			t.Errorf("edit: got %v, want ErrConflict", err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if got := a.poisoned()[0].Payload; strings.Contains(got, "edited") {
			t.Errorf("payload: got %s, want it as it was", got)
		}
	})
}

func TestStatsSeeCrashedMessages(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := newApp(t, db, counting("c", &n))
		a.produce(order{})
		a.exec("UPDATE consumer_messages SET crashes = 1")
		p := must[*outbox.Processor](t)(outbox.NewProcessor(db, a.registry, outbox.ProcessorConfig{}))
		eventually(t, "the message has an age", func() bool {
			q := must[[]outbox.Queue](t)(p.Queues(t.Context()))[0]
			return q.Ready == 1 && q.OldestReady > time.Millisecond
		})
	})
}
