package testdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
)

// OpenRewritten opens a PostgreSQL database to which every statement goes
// through rewrite, on its way from database/sql to the driver. A test can so
// break the library's SQL on purpose, or hold a statement back, and the library
// needs no hook for it. A rewrite that never changes anything fails the test.
//
// rewrite is called from many goroutines. What opens and ends a transaction does
// not pass through it.
func OpenRewritten(t testing.TB, dsn string, rewrite func(sql string) string) *bun.DB {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatalf("data source name: %v", err)
	}
	connector := &rewriter{Connector: stdlib.GetConnector(*config), rewrite: rewrite}
	conns := sql.OpenDB(connector)
	conns.SetMaxOpenConns(20)
	conns.SetMaxIdleConns(20)
	db := bun.NewDB(conns, pgdialect.New())
	t.Cleanup(func() {
		_ = db.Close()
		if !connector.changed.Load() && !t.Skipped() {
			t.Error("no statement was rewritten: got every text unchanged, want the rewrite to apply")
		}
	})
	return db
}

// Replacing returns a rewrite that replaces texts, given as pairs of old and
// new. The test fails when one of the old texts is in no statement at all: the
// library has changed, and the test no longer tests what it says.
func Replacing(t testing.TB, pairs ...string) func(sql string) string {
	t.Helper()
	if len(pairs) == 0 || len(pairs)%2 != 0 {
		t.Fatalf("texts to replace: got %d, want pairs of old and new", len(pairs))
	}
	seen := make([]atomic.Bool, len(pairs)/2)
	t.Cleanup(func() {
		for i := range seen {
			if !seen[i].Load() && !t.Skipped() {
				t.Errorf("text to replace: got no statement with it, want some: %s", pairs[2*i])
			}
		}
	})
	return func(sql string) string {
		for i := range seen {
			if strings.Contains(sql, pairs[2*i]) {
				seen[i].Store(true)
				sql = strings.ReplaceAll(sql, pairs[2*i], pairs[2*i+1])
			}
		}
		return sql
	}
}

// rewriter is pgx with rewritten statements.
type rewriter struct {
	driver.Connector
	rewrite func(string) string
	changed atomic.Bool
}

// Connect implements driver.Connector.
func (r *rewriter) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := r.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &rewrittenConn{Conn: conn.(*stdlib.Conn), rewriter: r}, nil
}

func (r *rewriter) apply(sql string) string {
	rewritten := r.rewrite(sql)
	if rewritten != sql {
		r.changed.Store(true)
	}
	return rewritten
}

type rewrittenConn struct {
	*stdlib.Conn
	rewriter *rewriter
}

// QueryContext implements driver.QueryerContext.
func (c *rewrittenConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.QueryContext(ctx, c.rewriter.apply(query), args)
}

// ExecContext implements driver.ExecerContext.
func (c *rewrittenConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.ExecContext(ctx, c.rewriter.apply(query), args)
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *rewrittenConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return c.Conn.PrepareContext(ctx, c.rewriter.apply(query))
}

// Prepare implements driver.Conn.
func (c *rewrittenConn) Prepare(query string) (driver.Stmt, error) {
	return c.Conn.Prepare(c.rewriter.apply(query))
}
