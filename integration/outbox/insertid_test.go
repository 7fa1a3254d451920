package outbox_test

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
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
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
	a := testapp.New(t, db,
		bus.Consume("keyed", func(context.Context, order) error { return nil }),
		bus.Consume("other", func(_ context.Context, r refund) error { consumed <- r.ID; return nil }))

	// A snapshot that stays open keeps what is removed in the indexes.
	snapshot := testapp.Must[bun.Tx](t)(a.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead}))
	defer func() { _ = snapshot.Rollback() }()
	testapp.OK(t, testapp.Second(snapshot.NewSelect().TableExpr("message_claims").Count(t.Context())))
	want := 0
	switch state {
	case "pending": // and stays so: to settle it would wait for the transaction
		want = 1
		a.Produce(order{ID: "1"}, outbox.InsertID("k"), outbox.Delay(time.Hour))
	case "settled":
		a.Produce(order{ID: "1"}, outbox.InsertID("k"))
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "empty", a.Empty)
		r.MustStop()
	}
	tx := testapp.Must[bun.Tx](t)(a.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: level}))
	defer func() { _ = tx.Rollback() }()
	receipt, err := a.Producer.Produce(t.Context(), tx, order{ID: "2"}, outbox.InsertID("k"))
	if err != nil || receipt.Duplicates != want {
		t.Fatalf("produce with an insert id that is %s: got %+v and %v, want %d duplicates", state, receipt, err, want)
	}

	left := make(map[string]bool)
	for id, options := range map[string][]outbox.Option{"without": nil, "before": {outbox.InsertID("j")}, "behind": {outbox.InsertID("l")}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := a.Producer.Produce(ctx, a.DB, refund{ID: id}, options...)
		cancel()
		if err != nil {
			t.Fatalf("produce of something else, %s: %v", id, err)
		}
		left[id] = true
	}
	r := a.Start(testapp.Fast())
	defer r.MustStop()
	for len(left) > 0 {
		select {
		case id := <-consumed:
			delete(left, id)
		case <-time.After(time.Minute):
			t.Fatalf("not consumed beside an open transaction: %v", left)
		}
	}
	testapp.Eventually(t, "others are settled", func() bool {
		return a.Count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'other'") == 0
	})
	testapp.OK(t, tx.Rollback())
}

// TestReservedInsertIDsAreFree leaves an insert id behind that has no message, as a
// produce does that failed half-way in a transaction that its caller committed.
func TestReservedInsertIDsAreFree(t *testing.T) {
	t.Parallel()
	a := testapp.New(t, testdb.OldSnapshots(t), bus.Consume("keyed", func(context.Context, order) error { return nil }))
	reserve := func(key string) {
		t.Helper()
		if _, err := a.DB.NewRaw("INSERT INTO pending_insert_ids (insert_id, consumer_type) VALUES (?, 'keyed')",
			key).Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("once", func(t *testing.T) {
		reserve("once")
		for want := range 2 {
			if receipt := a.Produce(order{ID: "1"}, outbox.InsertID("once")); receipt.Duplicates != want {
				t.Errorf("produce %d: got %+v, want %d duplicates", want, receipt, want)
			}
		}
	})
	t.Run("old snapshot", func(t *testing.T) {
		reserve("snapshot")
		tx := testapp.Must[bun.Tx](t)(a.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead}))
		defer func() { _ = tx.Rollback() }()
		testapp.OK(t, testapp.Second(tx.NewSelect().TableExpr("pending_insert_ids").Count(t.Context())))
		a.Produce(order{ID: "1"}, outbox.InsertID("snapshot"))
		if receipt, err := a.Producer.Produce(t.Context(), tx, order{ID: "2"}, outbox.InsertID("snapshot")); err != nil ||
			receipt.Duplicates != 1 {
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
					receipt, err := a.Producer.Produce(t.Context(), a.DB, order{ID: key}, outbox.InsertID(key))
					if err != nil {
						t.Errorf("%s: %v", key, err)
					}
					written.Add(int64(receipt.Enqueued))
				})
			}
			group.Wait()
			if n := a.Count("SELECT count(*) FROM consumer_messages WHERE insert_id = ?", key); written.Load() != 1 || n != 1 {
				t.Errorf("%s: %d were told that they had written it, and %d are pending, want 1", key, written.Load(), n)
			}
		}
	})
}
