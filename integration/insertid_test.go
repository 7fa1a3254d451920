package integration_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
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
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
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
		case <-time.After(10 * time.Second):
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
