package handles_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/pgxtx"
)

// eachPgx runs a test in a transaction of pgx itself, and in one of From.
func eachPgx(t *testing.T, test func(t *testing.T, tx pgx.Tx)) {
	t.Run("pgx", func(t *testing.T) {
		t.Parallel()
		pool, db := onePool(t, 4)
		withEffects(t, db)
		tx := must(pool.Begin(t.Context()))(t)
		defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // nothing is kept
		test(t, tx)
	})
	eachFrom(t, test)
}

func eachFrom(t *testing.T, test func(t *testing.T, tx pgx.Tx)) {
	for name, open := range map[string]func(t *testing.T) *bun.DB{
		"from one pool":     func(t *testing.T) *bun.DB { _, db := onePool(t, 4); return db },
		"from database/sql": func(t *testing.T) *bun.DB { return testdb.Postgres(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			withEffects(t, db)
			tx := must(db.DB.BeginTx(t.Context(), nil))(t)
			defer tx.Rollback() //nolint:errcheck // nothing is kept
			test(t, must(pgxtx.From(t.Context(), tx))(t))
		})
	}
}

func effects(t *testing.T, tx pgx.Tx) string {
	t.Helper()
	rows, _ := tx.Query(t.Context(), "SELECT id FROM handles_effects ORDER BY id")
	return strings.Join(must(pgx.CollectRows(rows, pgx.RowTo[string]))(t), ",")
}

func insert(t *testing.T, tx pgx.Tx, id string) {
	t.Helper()
	must(tx.Exec(t.Context(), "INSERT INTO handles_effects (id) VALUES ($1)", id))(t)
}

// TestARollbackOfASavepointOfPgx takes back what was written since, whatever savepoints were set in between.
func TestARollbackOfASavepointOfPgx(t *testing.T) {
	t.Parallel()
	eachPgx(t, func(t *testing.T, tx pgx.Tx) {
		insert(t, tx, "a")
		outer := must(tx.Begin(t.Context()))(t)
		insert(t, outer, "b")
		for _, end := range []func(pgx.Tx, context.Context) error{pgx.Tx.Rollback, pgx.Tx.Commit} {
			beside := must(tx.Begin(t.Context()))(t)
			insert(t, beside, "c")
			must(0, end(beside, t.Context()))(t)
		}
		must(0, outer.Rollback(t.Context()))(t)
		if got := effects(t, tx); got != "a" {
			t.Errorf("got rows %s, want a", got)
		}
	})
}

// TestASavepointOfPgxThatIsOver runs no statement any more.
func TestASavepointOfPgxThatIsOver(t *testing.T) {
	t.Parallel()
	eachPgx(t, func(t *testing.T, tx pgx.Tx) {
		for _, end := range []func(pgx.Tx, context.Context) error{pgx.Tx.Rollback, pgx.Tx.Commit} {
			ctx, inner := t.Context(), must(tx.Begin(t.Context()))(t)
			must(0, end(inner, ctx))(t)
			var n int
			for what, call := range map[string]func() error{
				"exec":      func() error { _, err := inner.Exec(ctx, "SELECT 1"); return err },
				"query":     func() error { rows, _ := inner.Query(ctx, "SELECT 1"); rows.Close(); return rows.Err() },
				"query row": func() error { return inner.QueryRow(ctx, "SELECT 1").Scan(&n) },
				"batch":     func() error { return inner.SendBatch(ctx, batchOf("SELECT 1")).Close() },
				"begin":     func() error { _, err := inner.Begin(ctx); return err },
				"prepare":   func() error { _, err := inner.Prepare(ctx, "p", "SELECT 1"); return err },
				"copy": func() error {
					_, err := inner.CopyFrom(ctx, pgx.Identifier{"handles_effects"}, []string{"id"}, pgx.CopyFromRows(nil))
					return err
				},
				"commit":   func() error { return inner.Commit(ctx) },
				"rollback": func() error { return inner.Rollback(ctx) },
			} {
				if err := call(); !errors.Is(err, pgx.ErrTxClosed) {
					t.Errorf("%s: got %v, want ErrTxClosed", what, err)
				}
			}
		}
		insert(t, tx, "a")
	})
}

// TestRowsOfAFailedQueryOfPgx: there are none, and the error is returned again.
func TestRowsOfAFailedQueryOfPgx(t *testing.T) {
	t.Parallel()
	eachPgx(t, func(t *testing.T, tx pgx.Tx) {
		rows, _ := tx.Query(t.Context(), "SELECT * FROM no_such_table")
		rows.Next()
		if tag := rows.CommandTag().String(); tag != "" {
			t.Errorf("got tag %q, want none", tag)
		}
		if values, _ := rows.Values(); len(values) != 0 {
			t.Errorf("got values %v, want none", values)
		}
		if values := rows.RawValues(); len(values) != 0 {
			t.Errorf("got raw values %v, want none", values)
		}
		if _, err := pgx.CollectRows(rows, pgx.RowToMap); err == nil {
			t.Error("collected: got no error, want that of the query")
		}
	})
}

// TestAFailedScanOfPgxClosesTheRows: pgx does so.
func TestAFailedScanOfPgxClosesTheRows(t *testing.T) {
	t.Parallel()
	eachPgx(t, func(t *testing.T, tx pgx.Tx) {
		var n int
		rows := must(tx.Query(t.Context(), "SELECT 'text' UNION ALL SELECT 'b'"))(t)
		if !rows.Next() || rows.Scan(&n) == nil {
			t.Error("scan text into an int: got no error, want one")
		}
		insert(t, tx, "a")
		if err := tx.QueryRow(t.Context(), "SELECT 'text'").Scan(&n); err == nil {
			t.Error("scan text into an int: got no error, want one")
		}
		insert(t, tx, "b")
	})
}

// panics is an argument whose method panics.
type panics struct{}

func (panics) Value() (driver.Value, error) { panic("an argument") }

// TestAPanicOfAnArgumentOfPgx reaches the caller, who can recover from it.
func TestAPanicOfAnArgumentOfPgx(t *testing.T) {
	t.Parallel()
	eachPgx(t, func(t *testing.T, tx pgx.Tx) {
		for what, call := range map[string]func(){
			"exec":      func() { _, _ = tx.Exec(t.Context(), "SELECT $1::text", panics{}) },
			"query":     func() { _, _ = tx.Query(t.Context(), "SELECT $1::text", panics{}) },
			"query row": func() { _ = tx.QueryRow(t.Context(), "SELECT $1::text", panics{}).Scan() },
		} {
			func() {
				defer func() {
					if got := fmt.Sprint(recover()); !strings.Contains(got, "an argument") {
						t.Errorf("%s: recovered %s, want the argument's panic", what, got)
					}
				}()
				call()
			}()
		}
	})
}

// traced collects the statements of a pool.
type traced struct {
	mu  sync.Mutex
	all []string
}

func (r *traced) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	r.add(data.SQL)
	return ctx
}

func (r *traced) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if data.Err != nil {
		r.add(data.Err.Error())
	}
}

func (r *traced) add(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, line)
}

// tracedPool is onePool with a tracer.
func tracedPool(t *testing.T, seen *traced, connections int32) (*pgxpool.Pool, *bun.DB) {
	t.Helper()
	config := must(pgxpool.ParseConfig(testdb.PostgresDSN(t)))(t)
	config.ConnConfig.Tracer, config.MaxConns = seen, connections
	pool := must(pgxpool.NewWithConfig(t.Context(), config))(t)
	db := bun.NewDB(pgxtx.Open(pool), pgdialect.New())
	t.Cleanup(func() { _ = db.Close(); pool.Close() })
	return pool, db
}

// TestATracerOfPgxSeesTheStatementsAlone of a transaction of From.
func TestATracerOfPgxSeesTheStatementsAlone(t *testing.T) {
	t.Parallel()
	seen := &traced{}
	_, db := tracedPool(t, seen, 2)
	sqlTx := must(db.DB.BeginTx(t.Context(), nil))(t)
	tx := must(pgxtx.From(t.Context(), sqlTx))(t)
	must(tx.Exec(t.Context(), "SELECT 1"))(t)
	var n int
	must(0, tx.QueryRow(t.Context(), "SELECT 2").Scan(&n))(t)
	must(0, sqlTx.Rollback())(t)
	if got := strings.Join(seen.all, "; "); got != "begin; SELECT 1; SELECT 2; rollback" {
		t.Errorf("got %s, want the statements alone", got)
	}
}

// TestATransactionOfPgxThatAConsumerKeeps is over when the consumer's function returns.
func TestATransactionOfPgxThatAConsumerKeeps(t *testing.T) {
	t.Parallel()
	_, db := onePool(t, 12)
	withEffects(t, db)
	kept := make(chan pgx.Tx, 1)
	a := testapp.New(t, db, pgxtx.ConsumeTx("c", func(_ context.Context, tx pgx.Tx, _ order) error { kept <- tx; return nil }))
	a.Produce(order{})
	a.Start(testapp.Fast())
	tx := <-kept
	for {
		rows, err := tx.Query(t.Context(), "SELECT 1") // left open: it would hold up the commit
		if err != nil {
			break
		}
		_ = rows
	}
	testapp.Eventually(t, "the message is consumed", func() bool { return counts(t, db)[1] == 0 })
}

// TestABatchOfPgxThatBeginsATransaction is refused inside one: its end would end the owner's.
func TestABatchOfPgxThatBeginsATransaction(t *testing.T) {
	t.Parallel()
	eachPgx(t, func(t *testing.T, tx pgx.Tx) {
		begins := new(pgx.Batch)
		begins.BeginTx(pgx.TxOptions{})
		results := tx.SendBatch(t.Context(), begins)
		if err := results.Close(); err == nil || !strings.Contains(err.Error(), "cannot be used within a transaction") {
			t.Errorf("got %v, want an error", err)
		}
		if err := results.Tx().Commit(t.Context()); !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("commit: got %v, want ErrTxClosed", err)
		}
		insert(t, tx, "a")
	})
}

// TestOnePoolRemembersWhatItsConnectionsHavePlanned, although the pool lends them anew for each statement.
func TestOnePoolRemembersWhatItsConnectionsHavePlanned(t *testing.T) {
	t.Parallel()
	seen := &traced{}
	_, db := tracedPool(t, seen, 3)
	a := testapp.New(t, db, testapp.Consumed("c"))
	config := testapp.Fast()
	config.Fetchers = 1
	r := a.Start(config)
	for range 40 {
		a.Produce(order{})
		testapp.Eventually(t, "the message is consumed", func() bool { return a.Empty() })
	}
	r.MustStop()
	asked := 0
	for _, statement := range seen.all {
		if strings.Contains(statement, "pg_prepared_statements") {
			asked++
		}
	}
	if asked == 0 || asked > 24 { // each of 3 connections plans a few groups of statements
		t.Errorf("got %d looks at what 3 connections have planned, want 1 to 24", asked)
	}
}

// idle is a driver that does nothing and reports success.
type idle struct{}

func (idle) Connect(context.Context) (driver.Conn, error) { return idle{}, nil }
func (idle) Driver() driver.Driver                        { return nil }
func (idle) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (idle) Close() error                                 { return nil }
func (idle) Begin() (driver.Tx, error)                    { return idle{}, nil }
func (idle) Commit() error                                { return nil }
func (idle) Rollback() error                              { return nil }
func (idle) CheckNamedValue(*driver.NamedValue) error     { return nil }
func (idle) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return driver.ResultNoRows, nil
}

// TestTransactionsThatAreNotOfPgx are refused before a statement is sent.
func TestTransactionsThatAreNotOfPgx(t *testing.T) {
	t.Parallel()
	refused := func(name string, db *sql.DB) {
		tx := must(db.BeginTx(t.Context(), nil))(t)
		defer tx.Rollback() //nolint:errcheck // nothing was written
		if _, err := pgxtx.From(t.Context(), tx); err == nil || !strings.Contains(err.Error(), "driver is not pgx") {
			t.Errorf("%s: got %v, want an error that says so", name, err)
		}
	}
	refused("SQLite", testdb.SQLite(t).DB)
	pool := sql.OpenDB(idle{})
	defer pool.Close()
	refused("a driver that takes any argument", pool)
	_, db := onePool(t, 2)
	over := must(db.DB.BeginTx(t.Context(), nil))(t)
	must(0, over.Rollback())(t)
	if _, err := pgxtx.From(t.Context(), over); !errors.Is(err, sql.ErrTxDone) {
		t.Errorf("a transaction that is over: got %v, want ErrTxDone", err)
	}
	if _, err := pgxtx.From(t.Context(), nil); err == nil {
		t.Error("nil: got no error")
	}
}

// TestTwoStatementsAtOnceInATransactionOfPgx: the second is refused. It might wait for the first for ever.
func TestTwoStatementsAtOnceInATransactionOfPgx(t *testing.T) {
	t.Parallel()
	eachFrom(t, func(t *testing.T, tx pgx.Tx) {
		running, tried, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := tx.CopyFrom(t.Context(), pgx.Identifier{"handles_effects"}, []string{"id"}, pgx.CopyFromFunc(func() ([]any, error) {
				close(running)
				<-tried
				return nil, nil
			}))
			done <- err
		}()
		<-running
		_, err := tx.Exec(t.Context(), "SELECT 1")
		close(tried)
		if err == nil {
			t.Error("got no error, want one")
		}
		must(0, <-done)(t)
		insert(t, tx, "a")
	})
}
