package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// cause is why a run failed, if the handler is not to blame.
type cause uint8

const (
	conflict  cause = iota // it lost against another transaction
	database               // the connection was lost, or the server cannot go on
	unstarted              // the same, before the handler began
)

// fault is the error of a run that failed without fault of the handler. A consumer gets it from
// outbox.Step, wrapped; no other package can name its type.
type fault struct {
	of  cause
	err error
}

// Error implements error.
func (f *fault) Error() string { return f.err.Error() }

// Unwrap returns the database's error.
func (f *fault) Unwrap() error { return f.err }

const (
	conflictTries = 3  // immediate tries of a run that loses conflicts
	maxUncounted  = 10 // in a row; the last one counts as an attempt

	firstUncounted   = 50 * time.Millisecond // the wait after the first one; it doubles
	longestUncounted = 15 * time.Second
)

// blame returns a fault if the handler is not to blame for err, else err. Errors that the handler's
// statements caused are its own: a timeout, a lock wait, a write in a transaction that it made
// read-only. So are errors of another database, which leave our transaction usable.
func (t *consumerTx) blame(ctx context.Context, err error) error {
	if _, panicked := err.(*isolate.Panicked); panicked || bus.OutcomeOf(err).Outcome != bus.Errored || ctx.Err() != nil {
		return err
	}
	of := database
	switch dberr.ClassOf(err) {
	case dberr.Conflict:
		of = conflict
		if dberr.SaysConflict(err) {
			return &fault{of, err} // even if the transaction is usable: it has written nothing
		}
	case dberr.ReadOnly:
		if !t.transactor.store.ReadOnly(t.ctx, t.transactor.db) {
			return err
		}
		return &fault{of, err}
	case dberr.Exhausted, dberr.Unavailable:
	default:
		return err
	}
	statement, cancel := context.WithTimeout(t.ctx, statementTimeout)
	defer cancel()
	if t.transactor.store.Usable(statement, t.tx.Tx) {
		return err
	}
	return &fault{of, err}
}

// errEnded replaces sql.ErrTxDone, which does not name the cause.
var errEnded = errors.New("outbox: the consumer committed or rolled back its transaction: only the library may end it")

// condemnEnded makes errEnded permanent: another attempt would write again what the consumer has
// committed. It does not if the library closed the transaction after the database had ended it.
func condemnEnded(err error, wakeups *txn.Wakeups) error {
	if err == errEnded && !wakeups.Closed() {
		return bus.Permanent(err)
	}
	return err
}

// ofTransaction returns the error of a message for one of our statements. It is a fault if the
// database is to blame; otherwise the handler has broken the transaction.
func ofTransaction(statement string, err error) error {
	switch class := dberr.ClassOf(err); {
	case class == dberr.Conflict:
		return &fault{conflict, fmt.Errorf("%s: %w", statement, err)}
	case class.Outage(), class == dberr.Timeout && !dberr.Answered(err):
		return &fault{database, fmt.Errorf("%s: %w", statement, err)}
	case statement != "commit" && errors.Is(err, sql.ErrTxDone):
		return errEnded
	}
	return fmt.Errorf("outbox: the consumer's transaction: %s: %w", statement, err)
}

// uncountedRuns counts the runs in a row that failed without fault of the handler. It is safe for
// concurrent use.
type uncountedRuns struct {
	failed    streaks
	unstarted streaks // of runs whose handlers never began
	total     atomic.Int64
}

// outcome returns the outcome error of a run that failed with a fault: it is repeated without
// costing an attempt. The last of maxUncounted such runs in a row counts, unless the handler never
// began.
func (u *uncountedRuns) outcome(t *task, f *fault) error {
	counts := &u.failed
	if f.of == unstarted {
		counts = &u.unstarted
	}
	n := counts.add(t.row.ID)
	if n >= maxUncounted && f.of != unstarted {
		u.failed.forget(t.row.ID)
		return fmt.Errorf("outbox: %d uncounted runs in a row, the last counts as an attempt: %w", n, f.err)
	}
	u.total.Add(1)
	return &bus.OutcomeError{Outcome: bus.Snoozed, Delay: uncountedDelay(n), Err: fmt.Errorf("%w: %w", bus.ErrNotCounted, f.err)}
}

// forget ends the streaks of a message.
func (u *uncountedRuns) forget(row int64) {
	if u.total.Load() == 0 {
		return
	}
	u.failed.forget(row)
	u.unstarted.forget(row)
}

// uncountedDelay returns the wait after the n-th uncounted run in a row, ±50 %.
func uncountedDelay(n int) time.Duration {
	d := min(firstUncounted<<min(n-1, 20), longestUncounted)
	return d/2 + rand.N(d)
}

// maxStreaks bounds the streaks in memory. A streak dropped too early begins anew.
const maxStreaks = 10_000

// streaks counts the uncounted runs in a row of each message. The zero value is ready. It is safe
// for concurrent use.
type streaks struct {
	mu sync.Mutex
	of map[int64]int // by row
}

// add counts one more run and returns the length of the streak.
func (s *streaks) add(row int64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = make(map[int64]int)
	}
	if _, known := s.of[row]; !known && len(s.of) >= maxStreaks {
		for other := range s.of {
			delete(s.of, other)
			break
		}
	}
	s.of[row]++
	return s.of[row]
}

// forget ends a streak.
func (s *streaks) forget(row int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, row)
}
