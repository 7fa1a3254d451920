package handles_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/pgxtx"
)

// onePool is a database of the library over a pool of the application in pgx's default mode.
func onePool(t *testing.T, connections int32) (*pgxpool.Pool, *bun.DB) {
	t.Helper()
	config := must(pgxpool.ParseConfig(testdb.PostgresDSN(t)))(t)
	config.ConnConfig.DefaultQueryExecMode, config.MaxConns = pgx.QueryExecModeCacheStatement, connections
	pool := must(pgxpool.NewWithConfig(t.Context(), config))(t)
	db := bun.NewDB(pgxtx.Open(pool), pgdialect.New())
	t.Cleanup(func() { _ = db.Close(); pool.Close() })
	return pool, db
}

func pgxWorld(t *testing.T) (*bun.DB, world) {
	pool, db := onePool(t, 20)
	return db, world{"pgx.Tx", func(t *testing.T, _ *bun.DB) transaction {
		return pgxtx.Of(must(pool.Begin(t.Context()))(t)).(transaction)
	}}
}

// TestConsumersWriteInATransactionOfPgx has every third run fail after its write, on a pool shared with
// the application, and on one of database/sql.
func TestConsumersWriteInATransactionOfPgx(t *testing.T) {
	t.Parallel()
	const messages = 30
	var runs atomic.Int64
	effect := func(ctx context.Context, tx pgx.Tx, o order) error {
		if _, err := tx.Exec(ctx, "INSERT INTO handles_effects (id) VALUES ($1)", o.ID); err != nil {
			return err
		}
		if runs.Add(1)%3 == 0 {
			return errors.New("after the write")
		}
		return nil
	}
	for name, consumer := range map[string]func() bus.Consumer{
		"alone": func() bus.Consumer { return pgxtx.ConsumeTx("c", effect, bus.MaxAttempts(100)) },
		"group": func() bus.Consumer { return pgxtx.ConsumeTx("c", effect, bus.MaxAttempts(100), outbox.GroupCommit(10)) },
		"batch": func() bus.Consumer {
			return pgxtx.ConsumeBatchTx("c", func(ctx context.Context, tx pgx.Tx, orders []order) error {
				for _, o := range orders {
					if err := effect(ctx, tx, o); err != nil {
						return err
					}
				}
				return nil
			}, bus.MaxAttempts(100), bus.BatchSize(7))
		},
	} {
		for pool, open := range map[string]func(t *testing.T) *bun.DB{
			"one pool":     func(t *testing.T) *bun.DB { _, db := onePool(t, 20); return db },
			"database/sql": func(t *testing.T) *bun.DB { return testdb.Postgres(t) },
		} {
			t.Run(name+" on "+pool, func(t *testing.T) {
				t.Parallel()
				db := open(t)
				withEffects(t, db)
				a := testapp.New(t, db, consumer())
				a.ProduceMany(messages)
				a.Start(testapp.Fast())
				testapp.Eventually(t, "all messages are consumed", func() bool { return counts(t, db)[1] == 0 })
				var distinct int
				must(0, db.NewRaw("SELECT count(DISTINCT id) FROM handles_effects").Scan(t.Context(), &distinct))(t)
				if got := counts(t, db)[0]; got != messages || distinct != messages {
					t.Errorf("got %d rows, %d of them distinct, want %d", got, distinct, messages)
				}
			})
		}
	}
}

// TestATransactionOfPgxInAConsumer does all that a pgx.Tx can do.
func TestATransactionOfPgxInAConsumer(t *testing.T) {
	t.Parallel()
	_, db := onePool(t, 12)
	withEffects(t, db)
	var a *app
	var followed atomic.Int64
	consume := func(ctx context.Context, tx pgx.Tx, o order) error {
		inner, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		if _, err := inner.Exec(ctx, "INSERT INTO handles_effects (id) VALUES ('undone')"); err != nil {
			return err
		}
		if err := inner.Rollback(ctx); err != nil {
			return err
		}
		if err := inner.Rollback(ctx); !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("a second rollback: got %v, want ErrTxClosed", err)
		}
		if err := tx.Commit(ctx); err == nil {
			t.Error("commit: got no error, want one")
		}
		copied, err := tx.CopyFrom(ctx, pgx.Identifier{"handles_effects"}, []string{"id"}, pgx.CopyFromRows([][]any{{"a"}, {"b"}}))
		if err != nil || copied != 2 {
			return fmt.Errorf("copied %d: %w", copied, err)
		}
		results := tx.SendBatch(ctx, batchOf("INSERT INTO handles_effects (id) VALUES ('c')", "SELECT 1"))
		if _, err := tx.Exec(ctx, "SELECT 1"); err == nil || !strings.Contains(err.Error(), "are open") {
			t.Errorf("a statement beside an open batch: got %v, want an error", err)
		}
		if err := results.Close(); err != nil {
			return err
		}
		var n int
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM handles_effects").Scan(&n); err != nil || n != 3 {
			return fmt.Errorf("%d rows: %w", n, err)
		}
		if err := tx.QueryRow(ctx, "SELECT 1 WHERE false").Scan(&n); !errors.Is(err, pgx.ErrNoRows) {
			t.Errorf("no row: got %v, want ErrNoRows", err)
		}
		if _, err := a.Producer.Produce(ctx, pgxtx.Of(tx), testapp.Refund{ID: o.ID}); err != nil {
			return err
		}
		_, err = tx.Query(ctx, "SELECT id FROM handles_effects") // left open
		if _, err := a.Producer.Produce(ctx, pgxtx.Of(tx), testapp.Refund{ID: o.ID}); err == nil || !strings.Contains(err.Error(), "are open") {
			t.Errorf("produce beside open rows: got %v, want an error", err)
		}
		return err
	}
	a = testapp.New(t, db, pgxtx.ConsumeTx("first", consume),
		bus.Consume("second", func(context.Context, testapp.Refund) error { followed.Add(1); return nil }))
	a.Produce(order{ID: "x"})
	r := a.Start(testapp.Fast())
	testapp.Eventually(t, "both have run", func() bool { return counts(t, db) == [2]int{3, 0} && followed.Load() > 0 })
	r.MustStop()
	if got := followed.Load(); got != 1 {
		t.Errorf("got %d runs of the follow-up, want 1", got)
	}
}

func batchOf(statements ...string) *pgx.Batch {
	b := new(pgx.Batch)
	for _, s := range statements {
		b.Queue(s)
	}
	return b
}

// TestAnAbandonedConsumerOfPgx ignores its timeout in a statement: it is rolled back and runs again.
func TestAnAbandonedConsumerOfPgx(t *testing.T) {
	t.Parallel()
	_, db := onePool(t, 12)
	withEffects(t, db)
	var runs atomic.Int64
	a := testapp.New(t, db, pgxtx.ConsumeTx("slow", func(ctx context.Context, tx pgx.Tx, _ order) error {
		if _, err := tx.Exec(ctx, "INSERT INTO handles_effects (id) VALUES ('a')"); err != nil {
			return err
		}
		if runs.Add(1) == 1 {
			_, err := tx.Exec(context.Background(), "SELECT pg_sleep(60)")
			return err
		}
		return nil
	}, bus.Timeout(time.Second)))
	a.Produce(order{})
	a.Start(testapp.Fast())
	testapp.Eventually(t, "it has run again", func() bool { return counts(t, db) == [2]int{1, 0} })
}

// TestABackendIsKilledUnderAConsumerOfPgx loses the connection after the write.
func TestABackendIsKilledUnderAConsumerOfPgx(t *testing.T) {
	t.Parallel()
	pool, db := onePool(t, 12)
	withEffects(t, db)
	var runs atomic.Int64
	a := testapp.New(t, db, pgxtx.ConsumeTx("c", func(ctx context.Context, tx pgx.Tx, _ order) error {
		if _, err := tx.Exec(ctx, "INSERT INTO handles_effects (id) VALUES ('a')"); err != nil {
			return err
		}
		if runs.Add(1) == 1 {
			pid := tx.Conn().PgConn().PID()
			if _, err := pool.Exec(ctx, "SELECT pg_terminate_backend($1)", pid); err != nil {
				return err
			}
		}
		return nil
	}))
	a.Produce(order{})
	a.Start(testapp.Fast())
	testapp.Eventually(t, "it has run again", func() bool { return counts(t, db) == [2]int{1, 0} })
	if got := runs.Load(); got < 2 {
		t.Errorf("got %d runs, want 2 or more", got)
	}
}

// TestAConsumerOfPgxOnAnotherDriver is refused before anything runs. Without that check, a run fails.
func TestAConsumerOfPgxOnAnotherDriver(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	a := testapp.New(t, db, pgxtx.ConsumeTx("c", func(context.Context, pgx.Tx, order) error { return nil }, bus.MaxAttempts(1)))
	processor := must(outbox.NewProcessor(db, a.Registry, outbox.ProcessorConfig{}))(t)
	want := `consumer "c": pgxtx: the transaction's driver is not pgx`
	for _, err := range []error{processor.Check(t.Context()), processor.Run(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	a.Produce(order{})
	must(processor.ProcessNext(t.Context()))(t)
	if p := a.Poisoned(); len(p) != 1 || !strings.Contains(p[0].Errors, "pgxtx: the transaction's driver is not pgx") {
		t.Errorf("got %+v, want one with that error", p)
	}
}

// TestThreeConnectionsAreEnough for a program with one consumer.
func TestThreeConnectionsAreEnough(t *testing.T) {
	t.Parallel()
	_, db := onePool(t, 3)
	db.SetMaxOpenConns(3)
	withEffects(t, db)
	a := testapp.New(t, db, pgxtx.ConsumeTx("c", func(ctx context.Context, tx pgx.Tx, o order) error {
		_, err := tx.Exec(ctx, "INSERT INTO handles_effects (id) VALUES ($1)", o.ID)
		return err
	}))
	a.ProduceMany(50)
	config := testapp.Fast()
	config.Fetchers, config.TxConcurrency = 1, 1
	a.Start(config)
	testapp.Eventually(t, "all messages are consumed", func() bool { return counts(t, db) == [2]int{50, 0} })
}

// TestOnePoolPreparesNothingOfTheLibrary produces, consumes and looks on a pool in pgx's default mode.
func TestOnePoolPreparesNothingOfTheLibrary(t *testing.T) {
	t.Parallel()
	pool, db := onePool(t, 12)
	a := testapp.New(t, db, testapp.Consumed("one"), outbox.ConsumeTx("two", func(context.Context, bun.Tx, order) error { return nil }))
	a.ProduceMany(20)
	r := a.Start(testapp.Fast())
	withEffects(t, db)
	testapp.Eventually(t, "all messages are consumed", func() bool { return counts(t, db)[1] == 0 })
	r.MustStop()
	prepared := 0
	for _, conn := range pool.AcquireAllIdle(t.Context()) {
		var n int
		must(0, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'stmtcache%'", pgx.QueryExecModeExec).Scan(&n))(t)
		prepared += n
		conn.Release()
	}
	if prepared > 0 {
		t.Errorf("got %d statements that pgx has prepared, want 0", prepared)
	}
}

// TestProducingKeepsNoStatements: each text is another one.
func TestProducingKeepsNoStatements(t *testing.T) {
	t.Parallel()
	pool, db := onePool(t, 12)
	a := testapp.New(t, db, testapp.Consumed("c"))
	tx := must(pool.Begin(t.Context()))(t)
	defer tx.Rollback(t.Context()) //nolint:errcheck // nothing is kept
	for i := range 50 {
		must(a.Producer.Produce(t.Context(), pgxtx.Of(tx), order{ID: fmt.Sprint(i)}))(t)
	}
	var kept int
	must(0, tx.QueryRow(t.Context(), "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'INSERT%consumer_messages%'").Scan(&kept))(t)
	if kept != 0 {
		t.Errorf("got %d statements that the connection keeps, want 0", kept)
	}
}
