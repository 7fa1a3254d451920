package txn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// guest is a driver of database/sql whose only connection is a transaction that someone else has
// begun. Bun writes values into the text of a statement, so there are no arguments to pass on.
type guest struct {
	of   bus.Handle // nil for a template
	tx   *sql.Tx
	pool *sql.DB
	over bool
}

// newGuest begins a transaction that is the given one. Statements end with their own contexts.
func newGuest(ctx context.Context, h bus.Handle) (*guest, error) {
	g := &guest{of: h}
	g.pool = sql.OpenDB(g)
	var err error
	if g.tx, err = g.pool.BeginTx(context.WithoutCancel(ctx), nil); err != nil {
		return nil, errors.Join(err, g.pool.Close())
	}
	return g, nil
}

// end leaves the transaction as it is.
func (g *guest) end() {
	g.over = true
	_ = g.tx.Rollback()
	_ = g.pool.Close()
}

// Connect implements driver.Connector.
func (g *guest) Connect(context.Context) (driver.Conn, error) { return g, nil }

// Driver implements driver.Connector.
func (g *guest) Driver() driver.Driver { return nil }

// Close implements driver.Conn.
func (g *guest) Close() error { return nil }

// Prepare implements driver.Conn.
func (g *guest) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }

// Begin implements driver.Conn.
func (g *guest) Begin() (driver.Tx, error) { return g, nil }

// BeginTx implements driver.ConnBeginTx.
func (g *guest) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return g, nil }

// Commit implements driver.Tx.
func (g *guest) Commit() error { return errors.ErrUnsupported }

// Rollback implements driver.Tx. Before end it is called by [CloseEnded].
func (g *guest) Rollback() error {
	if tx, ok := g.of.(interface{ Rollback() error }); ok && !g.over {
		return tx.Rollback()
	}
	return nil
}

// ExecContext implements driver.ExecerContext.
func (g *guest) ExecContext(ctx context.Context, query string, _ []driver.NamedValue) (result driver.Result, err error) {
	defer g.recovered(&err)
	return g.of.ExecContext(ctx, query)
}

// recovered returns a panic of the handle as an error. After a panic in a query, database/sql waits
// forever for the end of the query when the transaction ends.
func (g *guest) recovered(err *error) {
	if value := recover(); value != nil {
		*err = fmt.Errorf("the database handle, a %T, panicked: %v", g.of, value)
	}
}

// QueryContext implements driver.QueryerContext. A handle that has rows of a driver returns them as they are.
func (g *guest) QueryContext(ctx context.Context, query string, _ []driver.NamedValue) (result driver.Rows, err error) {
	defer g.recovered(&err)
	if r, ok := g.of.(interface {
		QueryRows(ctx context.Context, query string) (driver.Rows, error)
	}); ok {
		return r.QueryRows(ctx, query)
	}
	rows, err := g.of.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	columns, err := rows.Columns()
	if err != nil {
		return nil, errors.Join(err, rows.Close())
	}
	r := &guestRows{Rows: rows, columns: columns, row: make([]any, len(columns)), into: make([]any, len(columns))}
	for i := range r.row {
		r.into[i] = &r.row[i]
	}
	return r, nil
}

// guestRows are rows of database/sql as those of a driver.
type guestRows struct {
	*sql.Rows
	columns   []string
	row, into []any
}

// Columns implements driver.Rows.
func (r *guestRows) Columns() []string { return r.columns }

// Next implements driver.Rows.
func (r *guestRows) Next(dest []driver.Value) error {
	if !r.Rows.Next() {
		if err := r.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	if err := r.Scan(r.into...); err != nil {
		return err
	}
	for i, v := range r.row {
		dest[i] = v
	}
	return nil
}

// Rows returns the rows of a handle with QueryRows as those of database/sql.
func Rows(ctx context.Context, h bus.Handle, query string) (*sql.Rows, error) {
	pool := sql.OpenDB(&guest{of: h, over: true})
	defer pool.Close() //nolint:errcheck // open rows close their connection
	return pool.QueryContext(ctx, query)
}
