// Package handles_test tests the library in transactions that are not Bun's.
package handles_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		fmt.Fprintln(os.Stderr, runChild(context.Background()))
		os.Exit(1)
	}
	testapp.Main(m)
}

type (
	app   = testapp.App
	order = testapp.Order
)

// world is a kind of transaction. begin begins one of a database.
type world struct {
	name  string
	begin func(t *testing.T, db *bun.DB) transaction
}

// transaction is a bus.Handle with its ends.
type transaction interface {
	bus.Handle
	Commit() error
	Rollback() error
}

func worlds() []world {
	return []world{
		{"bun.Tx", func(t *testing.T, db *bun.DB) transaction { return must(db.BeginTx(t.Context(), nil))(t) }},
		{"sql.Tx", func(t *testing.T, db *bun.DB) transaction { return must(db.DB.BeginTx(t.Context(), nil))(t) }},
		{"another library's", func(t *testing.T, db *bun.DB) transaction {
			return foreign{must(db.DB.BeginTx(t.Context(), nil))(t)}
		}},
	}
}

// foreign is a transaction of a library of which nothing is known, such as sqlx.
type foreign struct{ tx *sql.Tx }

func (f foreign) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return f.tx.ExecContext(ctx, query, args...)
}

func (f foreign) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return f.tx.QueryContext(ctx, query, args...)
}

func (f foreign) Commit() error   { return f.tx.Commit() }
func (f foreign) Rollback() error { return f.tx.Rollback() }

// each runs a test in each world on each database, which has a table of the application's.
func each(t *testing.T, test func(t *testing.T, db *bun.DB, w world)) {
	t.Run("pgx.Tx", func(t *testing.T) {
		t.Parallel()
		db, w := pgxWorld(t)
		withEffects(t, db)
		test(t, db, w)
	})
	for _, w := range worlds() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) { withEffects(t, db); test(t, db, w) })
		})
	}
}

func withEffects(t *testing.T, db *bun.DB) {
	t.Helper()
	must(db.ExecContext(t.Context(), "CREATE TABLE handles_effects (id VARCHAR(40) NOT NULL)"))(t)
}

// write writes a row of the application's.
func write(t *testing.T, h bus.Handle, id string) {
	t.Helper()
	must(h.ExecContext(t.Context(), "INSERT INTO handles_effects (id) VALUES ('"+id+"')"))(t)
}

// counts returns the rows of the application's, and the messages.
func counts(t *testing.T, db *bun.DB) (got [2]int) {
	t.Helper()
	for i, table := range []string{"handles_effects", "consumer_messages"} {
		if err := db.NewRaw("SELECT count(*) FROM ?", bun.Ident(table)).Scan(t.Context(), &got[i]); err != nil {
			t.Fatalf("count %s: %v", table, err)
		}
	}
	return got
}

func must[T any](value T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatalf("got %v, want no error", err)
		}
		return value
	}
}
