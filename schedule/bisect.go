package schedule

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// failure is a schedule that could not fire on its own.
type failure struct {
	id    int64
	row   *store.Schedule // as it was locked; nil if it could not be locked
	cause error
}

// isDatabases reports whether an error concerns the database, or other transactions in it, rather
// than schedules and their messages.
func isDatabases(err error) bool {
	if _, refused := errors.AsType[*refusedError](err); refused || errors.Is(err, errTooSlow) {
		return false
	}
	return dberr.IsUnavailable(err) || dberr.IsConflict(err)
}

// answers reports whether the database is available after a transaction failed.
func (p *Processor) answers(ctx context.Context, payloadTypes []string, cause error) bool {
	if !isDatabases(cause) && !errors.Is(cause, errTooSlow) || dberr.IsConflict(cause) {
		return true
	}
	_, _, err := p.next(ctx, payloadTypes)
	return err == nil
}

// bisect fires schedules whose transaction failed in halves. It returns those that fail on their
// own. Its error means that the database is unavailable.
func (p *Processor) bisect(
	ctx context.Context, payloadTypes []string, ids []int64, rows []store.Schedule, cause error,
) (n int, bad []failure, err error) {
	if ctx.Err() != nil || len(ids) == 0 || !p.answers(ctx, payloadTypes, cause) {
		return 0, nil, cause
	}
	if len(ids) == 1 {
		f := failure{id: ids[0], cause: cause}
		if len(rows) == 1 {
			f.row = &rows[0]
		}
		return 0, []failure{f}, nil
	}
	for half := range slices.Chunk(ids, (len(ids)+1)/2) {
		rows, err := p.fireTx(ctx, payloadTypes, store.ScheduleFilter{IDs: half, Tried: []int64{}}, len(half))
		if err == nil {
			n += len(rows)
			continue
		}
		if len(rows) > 0 {
			half = idsOf(rows) // another instance may have fired some of them
		}
		m, more, err := p.bisect(ctx, payloadTypes, half, rows, err)
		n, bad = n+m, append(bad, more...)
		if err != nil {
			return n, bad, err
		}
	}
	return n, bad, nil
}

// patience is the number of consecutive database errors after which a failure counts as the
// schedule's own.
const patience = 3

// setAside marks schedules that cannot fire. A schedule that cannot be marked is skipped for a
// while, so that it does not block others. If nothing could be written because of the database,
// setAside returns that error.
func (p *Processor) setAside(ctx context.Context, payloadTypes []string, n int, bad []failure) (int, error) {
	var left []failure
	for _, f := range bad {
		failures := p.aside.failed(f.id)
		if f.row != nil && (failures >= patience || !isDatabases(f.cause)) {
			err := p.postponeLater(ctx, payloadTypes, *f.row, f.cause)
			if err == nil {
				p.aside.forget(f.id)
				n++
				continue
			}
			f.cause = errors.Join(f.cause, err)
		}
		left = append(left, f)
	}
	for _, f := range left {
		if ctx.Err() != nil || n == 0 && isDatabases(f.cause) {
			return 0, f.cause
		}
	}
	for _, f := range left {
		wait := p.aside.put(f.id)
		p.config.Logger.Error(
			"schedule cannot fire, and its error cannot be stored", "schedule", f.id, "error", errorlog.Text(f.cause), "next_try", wait,
		)
	}
	return n + len(left), nil
}

// postponeLater postpones a schedule whose transaction was rolled back, unless it has fired or
// changed since.
func (p *Processor) postponeLater(ctx context.Context, payloadTypes []string, refused store.Schedule, cause error) error {
	postponed := false
	err := p.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		this := store.ScheduleFilter{ID: refused.ID, Tried: []int64{}}
		rows, err := p.store.Schedules.LockDue(ctx, tx, payloadTypes, this, 1, fireTimeout+serverGrace)
		if err != nil || len(rows) == 0 {
			return err
		}
		row := rows[0]
		if !row.AvailableAfter.Equal(refused.AvailableAfter.Time) || !row.RunAt.Equal(refused.RunAt.Time) {
			return nil
		}
		postponed = true
		return p.postpone(ctx, tx, row, cause)
	})
	if err == nil && postponed {
		p.complain(refused, cause)
	}
	return err
}

// complain logs a schedule that is postponed, and keeps this processor from trying it before.
func (p *Processor) complain(row store.Schedule, cause error) {
	p.tried.add(row.ID, time.Now())
	p.config.Logger.Error(
		"schedule cannot fire", "schedule", row.ID, "name", row.Name, "tag", row.Tag, "error", errorlog.Text(cause), "next_try",
		badDelay,
	)
}

// tried holds the schedules that one processor has postponed. Other processors try them, too, since
// the cause may be local: an older release cannot read what a newer one has written. It is safe for
// concurrent use; the zero value is empty.
type tried struct {
	mu    sync.Mutex
	until map[int64]time.Time
}

func (t *tried) add(id int64, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.until == nil {
		t.until = make(map[int64]time.Time)
	}
	t.until[id] = now.Add(badDelay)
}

// ids returns the schedules that were postponed less than badDelay ago. It is never nil.
func (t *tried) ids(now time.Time) []int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.until, func(_ int64, until time.Time) bool { return !until.After(now) })
	ids := slices.AppendSeq([]int64{}, maps.Keys(t.until))
	slices.Sort(ids)
	return ids
}

// aside holds, in the memory of one processor, the schedules that failed and could not be marked, and
// those for which a call of the application hangs: at most one call each. It is safe for concurrent
// use; the zero value is empty.
type aside struct {
	mu   sync.Mutex
	held map[int64]heldAside
}

type heldAside struct {
	failures int
	until    time.Time
	calls    *atomic.Int32 // abandoned calls that still run; may be nil
}

func (h heldAside) hangs() bool { return h.calls != nil && h.calls.Load() > 0 }

// calls counts the abandoned calls for a schedule.
func (a *aside) calls(id int64) *atomic.Int32 {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.held[id]
	if h.calls == nil {
		h.calls, h.until = new(atomic.Int32), time.Now() // and so it is kept for asideMemory
		a.hold(id, h)
	}
	return h.calls
}

func (a *aside) hold(id int64, h heldAside) {
	if a.held == nil {
		a.held = make(map[int64]heldAside)
	}
	a.held[id] = h
}

// asideMemory is how long failures are kept for a schedule that is no longer due, since it was
// deleted or changed.
const asideMemory = 10 * time.Minute

// failed counts a failure and returns the number of consecutive failures.
func (a *aside) failed(id int64) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.held[id]
	h.failures, h.until = h.failures+1, time.Now()
	a.hold(id, h)
	return h.failures
}

// put skips a schedule for a while, longer with each failure, and returns the wait.
func (a *aside) put(id int64) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.held[id]
	wait := min(time.Second<<min(max(h.failures, 1)-1, 10), badDelay)
	h.until = time.Now().Add(wait)
	a.hold(id, h)
	return wait
}

func (a *aside) forget(ids ...int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range ids {
		h := a.held[id]
		if h.hangs() {
			a.held[id] = heldAside{calls: h.calls}
		} else {
			delete(a.held, id)
		}
	}
}

// waiting returns the schedules to skip now, and when the first of them is retried; zero means
// none, or that their calls have to return before.
func (a *aside) waiting(now time.Time) (ids []int64, next time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, h := range a.held {
		switch {
		case h.hangs():
			ids = append(ids, id)
		case h.until.After(now):
			ids = append(ids, id)
			if next.IsZero() || h.until.Before(next) {
				next = h.until
			}
		case now.Sub(h.until) > asideMemory:
			delete(a.held, id)
		}
	}
	slices.Sort(ids)
	return ids, next
}
