package txn_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
)

// answered is a statement that the server has answered.
type answered struct {
	tx   string // what its transaction has begun with, besides settings; empty outside of transactions
	text string // without its values
	took time.Duration
	err  error
	pid  uint32 // of the server's process
}

// place is where a transaction is once the statement is answered.
func (a answered) place() string { return a.tx + " | " + a.text }

// openWatched opens a PostgreSQL database, and calls watch for each statement, on the goroutine that has sent it, before that
// hears of the answer. What watch keeps for itself stands still with its transaction.
func openWatched(dsn string, conns int, watch func(answered)) (*bun.DB, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	pool := sql.OpenDB(&watcher{Connector: stdlib.GetConnector(*config), watch: watch})
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	return bun.NewDB(pool, pgdialect.New()), nil
}

type watcher struct {
	driver.Connector
	watch func(answered)
}

// Connect implements driver.Connector.
func (w *watcher) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := w.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &watchedConn{Conn: conn.(*stdlib.Conn), watch: w.watch}, nil
}

// watchedConn is a connection, which is used by one goroutine at a time.
type watchedConn struct {
	*stdlib.Conn
	watch func(answered)
	inTx  bool
	tx    string
}

// told calls watch.
func (c *watchedConn) told(query string, begun time.Time, err error) {
	text := withoutValues(query)
	first, _, _ := strings.Cut(text, " ")
	switch {
	case first == "BEGIN":
		c.inTx, c.tx = true, ""
	case first == "COMMIT", text == "ROLLBACK":
		c.inTx, c.tx = false, ""
	case c.inTx && c.tx == "" && first != "SET" && first != "SAVEPOINT" && !strings.HasPrefix(text, "SELECT set_config"):
		c.tx = text
	}
	a := answered{text: text, took: time.Since(begun), err: err, pid: c.Conn.Conn().PgConn().PID()}
	if a.tx = c.tx; c.inTx && a.tx == "" {
		a.tx = "settings"
	}
	c.watch(a)
}

// QueryContext implements driver.QueryerContext.
func (c *watchedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	begun := time.Now()
	rows, err := c.Conn.QueryContext(ctx, query, args)
	c.told(query, begun, err)
	return rows, err
}

// ExecContext implements driver.ExecerContext.
func (c *watchedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	begun := time.Now()
	result, err := c.Conn.ExecContext(ctx, query, args)
	c.told(query, begun, err)
	return result, err
}

// BeginTx implements driver.ConnBeginTx.
func (c *watchedConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	begun := time.Now()
	tx, err := c.Conn.BeginTx(ctx, options)
	c.told("BEGIN", begun, err)
	if err != nil {
		return nil, err
	}
	return watchedTx{tx, c}, nil
}

type watchedTx struct {
	driver.Tx
	conn *watchedConn
}

// Commit implements driver.Tx.
func (t watchedTx) Commit() error {
	begun := time.Now()
	err := t.Tx.Commit()
	t.conn.told("COMMIT", begun, err)
	return err
}

// Rollback implements driver.Tx.
func (t watchedTx) Rollback() error {
	begun := time.Now()
	err := t.Tx.Rollback()
	t.conn.told("ROLLBACK", begun, err)
	return err
}

// What differs between two statements that do the same.
var (
	written = regexp.MustCompile(`VALUES \(.*?\)( ON CONFLICT| RETURNING|$)`)
	quoted  = regexp.MustCompile(`E?'(?:[^']|'')*'`)
	numbers = regexp.MustCompile(`\b\d+\b`)
	lists   = regexp.MustCompile(`\?(?:, *\?)+`)
	named   = regexp.MustCompile(`^EXECUTE (\w+)\b.*`)
	spaces  = regexp.MustCompile(`\s+`)
)

// withoutValues is the text that statements have in common which differ by their values.
func withoutValues(query string) string {
	text := strings.TrimSpace(spaces.ReplaceAllString(query, " "))
	if name := named.FindStringSubmatch(text); name != nil {
		return "EXECUTE " + name[1]
	}
	if strings.HasPrefix(text, "BEGIN") {
		return "BEGIN"
	}
	text = written.ReplaceAllString(quoted.ReplaceAllString(text, "?"), "VALUES ?$1")
	for _, values := range []*regexp.Regexp{numbers, lists} {
		text = values.ReplaceAllString(text, "?")
	}
	return text
}
