package pgxtx

import (
	"cmp"
	"context"
	"database/sql"
	"runtime"
	"sync"

	"github.com/jackc/pgx/v5"
)

// shared is what a transaction and its savepoints have in common.
type shared struct {
	tx     *sql.Tx
	conn   *pgx.Conn
	points int // savepoints so far

	mu    sync.Mutex
	busy  bool   // with a statement, or what it has left open
	close func() // of rows, or of the results of a batch, that are open
	done  bool   // the consumer's function has returned
}

// enter begins a statement, or returns why it cannot run. A statement must not wait for another
// one of the consumer's function, which may wait for it.
func (s *shared) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.done:
		return pgx.ErrTxClosed
	case s.close != nil:
		return errOpen
	case s.busy:
		return errBusy
	}
	s.busy = true
	return nil
}

func (s *shared) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = false
}

// finish lets no further statement run, and closes what is open: the end of the transaction would
// wait for it.
func (s *shared) finish() {
	s.mu.Lock()
	closeOpen := s.close
	s.done = true
	s.mu.Unlock()
	if closeOpen != nil {
		closeOpen()
	}
}

// keep notes what is open. It returns false once the consumer's function has returned.
func (s *shared) keep(closeOpen func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done {
		s.close = closeOpen
	}
	return !s.done
}

// locked runs fn under database/sql's lock of the connection.
func (s *shared) locked(ctx context.Context, fn func(conn *pgx.Conn) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	ran, err := false, error(nil)
	_, stopped := s.tx.ExecContext(ctx, "", capture(func(conn *pgx.Conn) { ran, err = true, fn(conn) }))
	if !ran {
		return cmp.Or(stopped, errNotPgx)
	}
	return err
}

// held is a lock of the connection that another goroutine holds.
type held struct {
	err      error
	panicked any
	returned bool
	begun    chan struct{} // closed once all of the above is set
	done     chan struct{} // closed to release the lock
	ended    chan struct{}
}

// hold is locked for what stays open after begin, until release is called. A panic of begin, which
// runs methods of the application's arguments, reaches the caller.
func (t *transaction) hold(ctx context.Context, begin func(conn *pgx.Conn) (closeOpen func(), err error)) (release func(), err error) {
	h := &held{begun: make(chan struct{}), done: make(chan struct{}), ended: make(chan struct{})}
	release = sync.OnceFunc(func() {
		t.keep(nil)
		close(h.done)
		<-h.ended
	})
	go h.run(func(begun func()) error {
		return t.locked(ctx, func(conn *pgx.Conn) error {
			closeOpen, err := begin(conn)
			if err == nil && !t.keep(func() { closeOpen(); release() }) {
				closeOpen()
				err = pgx.ErrTxClosed
			}
			if err == nil {
				begun()
				<-h.done
			}
			return err
		})
	})
	<-h.begun
	switch {
	case h.panicked != nil:
		panic(h.panicked)
	case !h.returned:
		runtime.Goexit()
	case h.err != nil:
		return nil, h.err
	}
	return release, nil
}

// run runs fn, which calls begun or returns an error.
func (h *held) run(fn func(begun func()) error) {
	began := sync.OnceFunc(func() { close(h.begun) })
	defer close(h.ended)
	defer began()
	defer func() {
		if value := recover(); value != nil {
			h.panicked = value
		}
	}()
	err := fn(func() {
		h.returned = true
		began()
	})
	if !h.returned {
		h.err, h.returned = err, true
	}
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

// Scan implements pgx.Rows.
func (r *openRows) Scan(dest ...any) error {
	err := r.Rows.Scan(dest...)
	if err != nil {
		r.Close() // pgx has closed its own
	}
	return err
}

// Values implements pgx.Rows.
func (r *openRows) Values() ([]any, error) {
	values, err := r.Rows.Values()
	if err != nil {
		r.Close() // pgx has closed its own
	}
	return values, err
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
		return cmp.Or(r.rows.Err(), pgx.ErrNoRows)
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
