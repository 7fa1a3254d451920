package pgxtx

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// opened is what is open in a transaction: rows, or the results of a batch.
type opened struct {
	is    atomic.Bool
	close func()
}

// end closes what a function has left open: the end of the transaction would wait for it.
func (o *opened) end() {
	if o.is.Load() {
		o.close()
	}
}

// hold is locked for what stays open after begin, until release is called.
func (t *transaction) hold(ctx context.Context, begin func(conn *pgx.Conn) error) (release func(), err error) {
	begun, done, ended := make(chan error, 1), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		err := t.locked(ctx, func(conn *pgx.Conn) error {
			err := begin(conn)
			t.open.is.Store(err == nil)
			begun <- err
			if err == nil {
				<-done
			}
			return err
		})
		select {
		case begun <- err: // begin was not called
		default:
		}
	}()
	if err := <-begun; err != nil {
		<-ended
		return nil, err
	}
	return sync.OnceFunc(func() {
		t.open.is.Store(false)
		close(done)
		<-ended
	}), nil
}

type openRows struct {
	pgx.Rows
	release func()
}

// Next implements pgx.Rows.
func (r *openRows) Next() bool {
	more := r.Rows.Next()
	if !more {
		r.release() // pgx has closed them
	}
	return more
}

// Close implements pgx.Rows.
func (r *openRows) Close() {
	r.Rows.Close()
	r.release()
}

type oneRow struct {
	rows pgx.Rows
	err  error
}

// Scan implements pgx.Row.
func (r oneRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

type openBatch struct {
	pgx.BatchResults
	release func()
}

// Close implements pgx.BatchResults.
func (b *openBatch) Close() error {
	defer b.release()
	return b.BatchResults.Close()
}

// failedRows are the rows of a query that failed.
type failedRows struct {
	pgx.Rows // nil; methods that a later pgx adds
	err      error
}

func (f failedRows) Close()            {}
func (f failedRows) Err() error        { return f.err }
func (f failedRows) Next() bool        { return false }
func (f failedRows) Scan(...any) error { return f.err }

// failedBatch are the results of a batch that failed.
type failedBatch struct {
	pgx.BatchResults // nil; methods that a later pgx adds
	err              error
}

func (f failedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, f.err }
func (f failedBatch) Query() (pgx.Rows, error)         { return failedRows{err: f.err}, f.err }
func (f failedBatch) QueryRow() pgx.Row                { return oneRow{err: f.err} }
func (f failedBatch) Close() error                     { return f.err }
