package integration_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// TestInsertIDLeavesOthersAlone keeps a transaction open that has produced with an
// insert id. Whatever else is produced meanwhile is written and consumed.
func TestInsertIDLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	for database, open := range map[string]func(testing.TB) *bun.DB{"postgres": testdb.Postgres, "mariadb": testdb.MariaDB} {
		for isolation, level := range map[string]sql.IsolationLevel{"default": sql.LevelDefault, "read committed": sql.LevelReadCommitted} {
			for _, state := range []string{"pending", "settled", "new"} {
				t.Run(fmt.Sprintf("%s, %s, %s", database, isolation, state), func(t *testing.T) {
					t.Parallel()
					insertIDLeavesOthersAlone(t, open(t), level, state)
				})
			}
		}
	}
}

func insertIDLeavesOthersAlone(t *testing.T, db *bun.DB, level sql.IsolationLevel, state string) {
	consumed := make(chan string, 10)
	a := newApp(t, db,
		bus.Consume("keyed", func(context.Context, order) error { return nil }),
		bus.Consume("other", func(_ context.Context, r refund) error { consumed <- r.ID; return nil }))

	// A snapshot that stays open keeps what is removed in the indexes.
	snapshot := must[bun.Tx](t)(a.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead}))
	defer func() { _ = snapshot.Rollback() }()
	if _, err := snapshot.NewSelect().TableExpr("message_claims").Count(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := 0
	switch state {
	case "pending": // and stays so: to settle it would wait for the transaction
		want = 1
		a.produce(order{ID: "1"}, outbox.InsertID("k"), outbox.Delay(time.Hour))
	case "settled":
		a.produce(order{ID: "1"}, outbox.InsertID("k"))
		r := a.start(fast())
		eventually(t, "empty", a.empty)
		r.mustStop()
	}
	tx := must[bun.Tx](t)(a.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level}))
	defer func() { _ = tx.Rollback() }()
	receipt, err := a.producer.Produce(t.Context(), tx, order{ID: "2"}, outbox.InsertID("k"))
	if err != nil || receipt.Duplicates != want {
		t.Fatalf("produce with an insert id that is %s: got %+v and %v, want %d duplicates", state, receipt, err, want)
	}

	left := make(map[string]bool)
	for id, options := range map[string][]outbox.Option{"without": nil, "before": {outbox.InsertID("j")}, "behind": {outbox.InsertID("l")}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := a.producer.Produce(ctx, a.db, refund{ID: id}, options...)
		cancel()
		if err != nil {
			t.Fatalf("produce of something else, %s: %v", id, err)
		}
		left[id] = true
	}
	r := a.start(fast())
	defer r.mustStop()
	for len(left) > 0 {
		select {
		case id := <-consumed:
			delete(left, id)
		case <-time.After(time.Minute):
			t.Fatalf("not consumed beside an open transaction: %v", left)
		}
	}
	eventually(t, "others are settled", func() bool {
		return a.count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'other'") == 0
	})
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
}

// oldSnapshots opens a database whose transactions may write what their snapshot does
// not show. With innodb_snapshot_isolation, the default from MariaDB 11.6.2 on, they get a conflict.
func oldSnapshots(t *testing.T) *bun.DB {
	t.Helper()
	dsn := testdb.MariaDBDSN(t)
	var known bool
	if err := testdb.OpenMariaDB(t, dsn).NewRaw("SELECT COUNT(*) > 0 FROM information_schema.SYSTEM_VARIABLES WHERE VARIABLE_NAME = 'INNODB_SNAPSHOT_ISOLATION'").Scan(t.Context(), &known); err != nil {
		t.Fatal(err)
	}
	if known {
		dsn += "?innodb_snapshot_isolation=0"
	}
	return testdb.OpenMariaDB(t, dsn)
}

// TestReservedInsertIDsAreFree leaves an insert id behind that has no message, as a
// produce does that failed half-way in a transaction that its caller committed.
func TestReservedInsertIDsAreFree(t *testing.T) {
	t.Parallel()
	a := newApp(t, oldSnapshots(t), bus.Consume("keyed", func(context.Context, order) error { return nil }))
	reserve := func(key string) {
		t.Helper()
		if _, err := a.db.NewRaw("INSERT INTO pending_insert_ids (insert_id, consumer_type) VALUES (?, 'keyed')", key).Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("once", func(t *testing.T) {
		reserve("once")
		for want := range 2 {
			if receipt := a.produce(order{ID: "1"}, outbox.InsertID("once")); receipt.Duplicates != want {
				t.Errorf("produce %d: got %+v, want %d duplicates", want, receipt, want)
			}
		}
	})
	t.Run("old snapshot", func(t *testing.T) {
		reserve("snapshot")
		tx := must[bun.Tx](t)(a.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead}))
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.NewSelect().TableExpr("pending_insert_ids").Count(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.produce(order{ID: "1"}, outbox.InsertID("snapshot"))
		if receipt, err := a.producer.Produce(t.Context(), tx, order{ID: "2"}, outbox.InsertID("snapshot")); err != nil || receipt.Duplicates != 1 {
			t.Errorf("produce in a transaction that began before: got %+v and %v, want a duplicate", receipt, err)
		}
	})
	t.Run("many at once", func(t *testing.T) {
		const rounds, producers = 20, 8
		for round := range rounds {
			key := fmt.Sprintf("race %d", round)
			reserve(key)
			var written atomic.Int64
			var group sync.WaitGroup
			for range producers {
				group.Go(func() {
					receipt, err := a.producer.Produce(t.Context(), a.db, order{ID: key}, outbox.InsertID(key))
					if err != nil {
						t.Errorf("%s: %v", key, err)
					}
					written.Add(int64(receipt.Enqueued))
				})
			}
			group.Wait()
			if n := a.count("SELECT count(*) FROM consumer_messages WHERE insert_id = ?", key); written.Load() != 1 || n != 1 {
				t.Errorf("%s: %d were told that they had written it, and %d are pending, want 1", key, written.Load(), n)
			}
		}
	})
}

// TestRequeueInAnOldSnapshot requeues, in a transaction of the caller's, a message that
// was poisoned after its snapshot was taken. Message 2 meets a pending insert id.
func TestRequeueInAnOldSnapshot(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	a, s := poisonedApp(t, oldSnapshots(t), 2, counting("c", &n))
	a.exec("UPDATE poisoned_messages SET insert_id = CONCAT('k', id)")
	a.exec("CREATE TABLE later AS SELECT * FROM poisoned_messages")
	a.exec("DELETE FROM poisoned_messages")
	a.produce(order{}, outbox.InsertID("k2"))
	tx := must[bun.Tx](t)(a.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead}))
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.NewSelect().TableExpr("poisoned_messages").Count(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.exec("INSERT INTO poisoned_messages SELECT * FROM later")
	want := poison.Result{Requeued: 1, Conflicts: 1}
	if result, err := s.Requeue(t.Context(), tx, 1, 2); err != nil || result != want {
		t.Errorf("requeue: got %+v and %v, want %+v", result, err, want)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if receipt := a.produce(order{}, outbox.InsertID("k1")); receipt.Duplicates != 1 {
		t.Errorf("produce with the insert id of what was requeued: got %+v, want a duplicate", receipt)
	}
	if pending, poisoned := len(a.pending()), len(a.poisoned()); pending != 2 || poisoned != 1 {
		t.Errorf("got %d messages pending and %d poisoned, want 2 and 1", pending, poisoned)
	}
}
