package pgxtx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"reflect"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/schema"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Of returns the transaction as a handle for outbox.Producer.Produce and everything else that takes
// a bus.Handle. The caller still commits it. Close all rows and batch results first: else the call
// fails, and sends nothing. It is as safe for concurrent use as the transaction, which is not.
func Of(tx pgx.Tx) bus.Handle {
	if v := reflect.ValueOf(tx); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil // the library returns an error
	}
	return handle{tx}
}

// handle is a transaction of pgx with the methods that package txn asks for.
type handle struct{ tx pgx.Tx }

// dialect is immutable.
var dialect = pgdialect.New()

// Dialect returns that of PostgreSQL.
func (handle) Dialect() schema.Dialect { return dialect }

// ExecContext runs a statement. The library writes values into its text: arguments are
// errors.ErrUnsupported.
func (h handle) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if len(args) > 0 {
		return nil, errors.ErrUnsupported
	}
	if err := h.free(); err != nil {
		return nil, err
	}
	tag, err := h.tx.Exec(ctx, query) // without arguments pgx prepares no statement
	return driver.RowsAffected(tag.RowsAffected()), err
}

// QueryContext runs a query; see ExecContext.
func (h handle) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if len(args) > 0 {
		return nil, errors.ErrUnsupported
	}
	return txn.Rows(ctx, h, query)
}

// QueryRows is QueryContext with the rows of a driver.
func (h handle) QueryRows(ctx context.Context, query string) (driver.Rows, error) {
	if err := h.free(); err != nil {
		return nil, err
	}
	found, err := h.tx.Query(ctx, query, pgx.QueryExecModeExec)
	if err != nil {
		return nil, err
	}
	r := &rows{rows: found, types: h.tx.Conn().TypeMap(), more: found.Next()} // after Next the columns are known
	if err := found.Err(); err != nil {
		found.Close()
		return nil, err
	}
	return r, nil
}

// free returns an error while rows are open: a statement of pgx beside them would close them, and
// leave the connection locked.
func (h handle) free() error {
	if _, ok := h.tx.(*transaction); ok {
		return nil // it looks itself, under the lock of its connection
	}
	if h.tx.Conn().PgConn().IsBusy() {
		return errOpen
	}
	return nil
}

// Commit marks a handle as a transaction. The library does not call it.
func (h handle) Commit() error { return h.tx.Commit(context.Background()) }

// Rollback marks a handle as a transaction. The library does not call it on PostgreSQL.
func (h handle) Rollback() error { return h.tx.Rollback(context.Background()) }
