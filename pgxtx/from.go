package pgxtx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// From returns a transaction of database/sql over pgx as a pgx.Tx. Commit and Rollback of it return
// an error: the owner of tx does that. Those of its savepoints work. Close its rows and batch
// results before the next statement, and before tx ends. LargeObjects panics.
//
// Each statement of pgx runs under database/sql's lock of the connection: a rollback by another
// goroutine waits for it. The connection that Conn returns has no such lock. Like any pgx.Tx it is
// not safe for concurrent use.
//
// On a database that [Open] has not made, a tracer of pgx also sees an empty statement that fails
// before each of these.
func From(ctx context.Context, tx *sql.Tx) (pgx.Tx, error) {
	t, err := from(ctx, tx)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func from(ctx context.Context, tx *sql.Tx) (*transaction, error) {
	if tx == nil {
		return nil, errors.New("pgxtx: the transaction is nil")
	}
	t := &transaction{shared: &shared{tx: tx}}
	if err := t.locked(ctx, func(conn *pgx.Conn) error { t.conn = conn; return nil }); err != nil {
		if errors.Is(err, errNotPgx) {
			return nil, errNotPgx
		}
		return nil, fmt.Errorf("pgxtx: %w", err)
	}
	return t, nil
}

// transaction is a transaction of database/sql, or a savepoint in it.
type transaction struct {
	pgx.Tx // nil; methods that a later pgx adds
	*shared
	point int // 0 is the transaction
	over  bool
}

var (
	errNotOwner = errors.New("pgxtx: Commit and Rollback are not allowed: the owner of the *sql.Tx ends it")
	errNotPgx   = errors.New("pgxtx: the transaction's driver is not pgx")
	errOpen     = errors.New("pgxtx: rows, or the results of a batch, are open: close them first")
	errBusy     = errors.New("pgxtx: another goroutine runs a statement in the transaction")
	errBeginTx  = errors.New("pgxtx: Batch.BeginTx cannot be used within a transaction")
)

// capture is an argument of a statement which pgx passes its connection to. It stops the statement
// before anything is sent.
type capture func(*pgx.Conn)

var errCaptured = errors.New("pgxtx: captured")

// RewriteQuery implements pgx.QueryRewriter.
func (c capture) RewriteQuery(_ context.Context, conn *pgx.Conn, _ string, _ []any) (string, []any, error) {
	c(conn)
	return "", nil, errCaptured
}

// Value implements driver.Valuer, which other drivers call.
func (capture) Value() (driver.Value, error) { return nil, errNotPgx }

// locked runs fn under database/sql's lock of the connection, unless the savepoint is over.
func (t *transaction) locked(ctx context.Context, fn func(conn *pgx.Conn) error) error {
	if t.over {
		return pgx.ErrTxClosed
	}
	return t.shared.locked(ctx, fn)
}

// Begin sets a savepoint.
func (t *transaction) Begin(ctx context.Context) (pgx.Tx, error) {
	t.points++
	inner := &transaction{shared: t.shared, point: t.points}
	if _, err := t.Exec(ctx, "SAVEPOINT "+inner.savepoint()); err != nil {
		return nil, err
	}
	return inner, nil
}

func (t *transaction) savepoint() string { return fmt.Sprintf("pgxtx_%d", t.point) }

// Commit releases a savepoint.
func (t *transaction) Commit(ctx context.Context) error { return t.end(ctx, "RELEASE SAVEPOINT ") }

// Rollback rolls back to a savepoint.
func (t *transaction) Rollback(ctx context.Context) error {
	return t.end(ctx, "ROLLBACK TO SAVEPOINT ")
}

func (t *transaction) end(ctx context.Context, how string) error {
	if t.point == 0 {
		return errNotOwner
	}
	_, err := t.Exec(ctx, how+t.savepoint())
	t.over = true
	return err
}

// Exec implements pgx.Tx.
func (t *transaction) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	err = t.locked(ctx, func(conn *pgx.Conn) (err error) { tag, err = conn.Exec(ctx, sql, args...); return err })
	return tag, err
}

// Prepare implements pgx.Tx.
func (t *transaction) Prepare(ctx context.Context, name, sql string) (d *pgconn.StatementDescription, err error) {
	err = t.locked(ctx, func(conn *pgx.Conn) (err error) { d, err = conn.Prepare(ctx, name, sql); return err })
	return d, err
}

// CopyFrom implements pgx.Tx.
func (t *transaction) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (n int64, err error) {
	err = t.locked(ctx, func(conn *pgx.Conn) (err error) { n, err = conn.CopyFrom(ctx, table, columns, src); return err })
	return n, err
}

// Query implements pgx.Tx.
func (t *transaction) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	r := &openRows{}
	release, err := t.hold(ctx, func(conn *pgx.Conn) (func(), error) {
		rows, err := conn.Query(ctx, sql, args...)
		r.Rows = rows
		return rows.Close, err
	})
	if err != nil {
		return pgx.FailedBatchResults(new(pgx.Batch), err).Query() // rows that return the error
	}
	r.release = release
	return r, nil
}

// QueryRow implements pgx.Tx.
func (t *transaction) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := t.Query(ctx, sql, args...)
	return oneRow{rows, err}
}

// SendBatch implements pgx.Tx.
func (t *transaction) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if pgx.FailedBatchResults(b, errBeginTx).Tx() != nil { // else it would begin and end the owner's
		return pgx.FailedBatchResults(b, errBeginTx)
	}
	r := &openBatch{}
	release, err := t.hold(ctx, func(conn *pgx.Conn) (func(), error) {
		r.BatchResults = conn.SendBatch(ctx, b)
		return func() { _ = r.BatchResults.Close() }, nil
	})
	if err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	r.release = release
	return r
}

// LargeObjects implements pgx.Tx.
func (t *transaction) LargeObjects() pgx.LargeObjects {
	panic("pgxtx: a transaction of database/sql has no large objects")
}

// Conn implements pgx.Tx.
func (t *transaction) Conn() *pgx.Conn { return t.conn }
