package handles_test

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/pgxtx"
)

// consumerTx is the transaction of a consumer, of any kind.
type consumerTx struct {
	exec             func(query string) error
	leaveOpen        func() error
	commit, rollback func() error
	nested           func() error // begins one and writes in it
}

func insertOf(id string) string { return "INSERT INTO handles_effects (id) VALUES ('" + id + "')" }

func ofSQL(tx *sql.Tx) consumerTx {
	ctx := context.Background()
	exec := func(q string) error { _, err := tx.ExecContext(ctx, q); return err }
	return consumerTx{exec, func() error {
		rows, err := tx.QueryContext(ctx, "SELECT 1 UNION ALL SELECT 2")
		if err == nil {
			rows.Next()
		}
		return err
	}, tx.Commit, tx.Rollback, func() error { return errors.Join(exec("SAVEPOINT own"), exec(insertOf("nested"))) }}
}

func ofPgx(tx pgx.Tx) consumerTx {
	ctx := context.Background()
	exec := func(q string) error { _, err := tx.Exec(ctx, q); return err }
	return consumerTx{exec, func() error {
		rows, err := tx.Query(ctx, "SELECT 1 UNION ALL SELECT 2")
		rows.Next()
		return err
	}, func() error { return exec("COMMIT") }, func() error { return exec("ROLLBACK") }, func() error {
		inner, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		_, err = inner.Exec(ctx, insertOf("nested"))
		return err
	}}
}

// deed is what a consumer does wrong in its first run of one message.
type deed struct {
	name    string
	do      func(tx consumerTx) error
	only    dialect.Name
	commits bool
	ends    bool // the transaction, as if all was well: alone, the message is poisoned at once
}

var errDeed = errors.New("a deed")

func deeds(kept func(tx consumerTx)) []deed {
	pg := dialect.PG
	return []deed{
		{"commits", func(tx consumerTx) error { return tx.commit() }, 0, true, true},
		{"commits and fails", func(tx consumerTx) error { return errors.Join(errDeed, tx.commit()) }, 0, true, false},
		{"rolls back", func(tx consumerTx) error { return tx.rollback() }, 0, false, true},
		{"rolls back and fails", func(tx consumerTx) error { return errors.Join(errDeed, tx.rollback()) }, 0, false, false},
		{"commits in SQL", func(tx consumerTx) error { return tx.exec("COMMIT") }, 0, true, true},
		{"rolls back in SQL", func(tx consumerTx) error { return tx.exec("ROLLBACK") }, 0, false, true},
		{"begins anew in SQL", func(tx consumerTx) error { return errors.Join(tx.exec("ROLLBACK"), tx.exec("BEGIN")) }, 0, false, true},
		{"leaves one open in it", func(tx consumerTx) error { return tx.nested() }, 0, false, false},
		{"leaves one open in it and fails", func(tx consumerTx) error { return errors.Join(errDeed, tx.nested()) }, 0, false, false},
		{"leaves rows open", func(tx consumerTx) error { return tx.leaveOpen() }, 0, false, false},
		{"leaves rows open and fails", func(tx consumerTx) error { return errors.Join(errDeed, tx.leaveOpen()) }, 0, false, false},
		{"leaves rows open and panics", func(tx consumerTx) error { _ = tx.leaveOpen(); panic("a deed") }, 0, false, false},
		{"ends its goroutine", func(tx consumerTx) error { _ = tx.leaveOpen(); runtime.Goexit(); return nil }, 0, false, false},
		{"hides a failed statement", func(tx consumerTx) error { _ = tx.exec("SELECT * FROM no_such_table"); return nil }, 0, false, false},
		{"changes search_path", func(tx consumerTx) error { return tx.exec("SET search_path = pg_catalog") }, pg, false, false},
		{"changes search_path locally", func(tx consumerTx) error { return tx.exec("SET LOCAL search_path = pg_catalog") }, pg, false, false},
		{"keeps it", func(tx consumerTx) error { kept(tx); return nil }, 0, false, false},
		{"keeps it and fails", func(tx consumerTx) error { kept(tx); return errDeed }, 0, false, false},
	}
}

// TestAConsumerThatMisusesItsTransaction harms no other message, and its failed run leaves nothing.
func TestAConsumerThatMisusesItsTransaction(t *testing.T) {
	t.Parallel()
	for i, d := range deeds(nil) {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			t.Run("pgx.Tx", func(t *testing.T) {
				t.Parallel()
				_, db := onePool(t, 12)
				withEffects(t, db)
				misuses(t, db, i, func(m *misuse) bus.Consumer {
					return pgxtx.ConsumeBatchTx("c", func(_ context.Context, tx pgx.Tx, orders []order) (err error) {
						for _, o := range orders {
							err = errors.Join(err, m.run(ofPgx(tx), o))
						}
						return err
					}, bus.MaxAttempts(6), bus.BatchSize(6))
				})
			})
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				withEffects(t, db)
				if d.only == 0 || d.only == db.Dialect().Name() {
					misuses(t, db, i, func(m *misuse) bus.Consumer {
						return outbox.ConsumeTx("c", func(_ context.Context, tx *sql.Tx, o order) error { return m.run(ofSQL(tx), o) },
							bus.MaxAttempts(6), outbox.GroupCommit(6))
					})
				}
			})
		})
	}
}

// misuse is a consumer that does a deed in its first run of the last message.
type misuse struct {
	deed deed
	runs atomic.Int64
}

func (m *misuse) run(tx consumerTx, o order) error {
	if o.ID != "5" || m.runs.Add(1) > 1 {
		return tx.exec(insertOf(o.ID))
	}
	if err := tx.exec(insertOf("bad")); err != nil {
		return err
	}
	return m.deed.do(tx)
}

func misuses(t *testing.T, db *bun.DB, i int, consumer func(*misuse) bus.Consumer) {
	var kept sync.WaitGroup
	m := &misuse{deed: deeds(func(tx consumerTx) {
		kept.Go(func() {
			for tx.exec(insertOf("kept")) == nil && tx.leaveOpen() == nil {
				runtime.Gosched()
			}
		})
	})[i]}
	a := testapp.New(t, db, consumer(m))
	a.ProduceMany(6)
	a.Start(testapp.Fast())
	testapp.Eventually(t, "all messages are consumed", func() bool { return counts(t, db)[1] == 0 })
	kept.Wait()
	var ids []string
	must(0, db.NewRaw("SELECT DISTINCT id FROM handles_effects WHERE id IN ('0', '1', '2', '3', '4', '5', 'bad') ORDER BY id").Scan(t.Context(), &ids))(t)
	got := strings.Join(ids, ",")
	wanted := []string{"0,1,2,3,4,5", "0,1,2,3,4,bad"} // the second, if its first run was well
	if m.deed.commits {
		wanted[0] = "0,1,2,3,4,5,bad"
	}
	if poisoned := a.Poisoned(); m.deed.ends && len(poisoned) == 1 && strings.Contains(poisoned[0].Payload, `"id":"5"`) { // it ran alone
		wanted = []string{strings.Replace(wanted[0], ",5", "", 1)}
	} else if len(poisoned) > 0 {
		t.Errorf("got poisoned messages %v, want none", poisoned)
	}
	if !slices.Contains(wanted, got) {
		t.Errorf("got effects %s, want %v: those of each message, and none of a run that failed", got, wanted)
	}
}
