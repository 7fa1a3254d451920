package schedule

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// failure is a schedule that could not fire by itself.
type failure struct {
	id    int64
	row   *store.Schedule // as it was locked; nil when it could not be
	cause error
}

// isDatabases reports whether an error speaks of the database, or of what else goes on
// in it, rather than of schedules and their messages.
func isDatabases(err error) bool {
	if _, refused := errors.AsType[*refusedError](err); refused || errors.Is(err, errTooSlow) {
		return false
	}
	return dberr.IsUnavailable(err) || dberr.IsConflict(err)
}

// answers reports whether the database is there, after a transaction that failed.
func (p *Processor) answers(ctx context.Context, payloadTypes []string, cause error) bool {
	if !isDatabases(cause) && !errors.Is(cause, errTooSlow) || dberr.IsConflict(cause) {
		return true
	}
	_, _, err := p.next(ctx, payloadTypes)
	return err == nil
}

// bisect fires schedules whose transaction failed in halves, down to those that fail
// by themselves, and returns these. Its error is that of a database that is not
// there.
func (p *Processor) bisect(ctx context.Context, payloadTypes []string, ids []int64, rows []store.Schedule, cause error) (n int, bad []failure, err error) {
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
		rows, err := p.fireTx(ctx, payloadTypes, store.ScheduleFilter{IDs: half}, len(half))
		if err == nil {
			n += len(rows)
			continue
		}
		if len(rows) > 0 {
			half = idsOf(rows) // others may have fired some of them
		}
		m, more, err := p.bisect(ctx, payloadTypes, half, rows, err)
		n, bad = n+m, append(bad, more...)
		if err != nil {
			return n, bad, err
		}
	}
	return n, bad, nil
}

// patience is how often in a row a schedule may fail with an error of the database
// until that counts as its own.
const patience = 3

// putAside marks schedules that cannot fire. What cannot be marked either is left alone for a
// while, so that it holds up no other. When nothing could be written, for reasons that are the
// database's, that is the database's failure, and an error.
func (p *Processor) putAside(ctx context.Context, payloadTypes []string, n int, bad []failure) (int, error) {
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
		p.config.Logger.Error("schedule cannot fire, and that cannot be written down", "schedule", f.id, "error", errorlog.Text(f.cause), "next_try", wait)
	}
	return n + len(left), nil
}

// postponeLater postpones a schedule whose transaction was rolled back, unless it was fired or
// changed since.
func (p *Processor) postponeLater(ctx context.Context, payloadTypes []string, refused store.Schedule, cause error) error {
	postponed := false
	err := p.inTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		rows, err := p.store.LockDueSchedules(ctx, tx, payloadTypes, store.ScheduleFilter{ID: refused.ID}, 1, fireTimeout+serverGrace)
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

func (p *Processor) complain(row store.Schedule, cause error) {
	p.config.Logger.Error("schedule cannot fire", "schedule", row.ID, "name", row.Name, "tag", row.Tag, "error", errorlog.Text(cause), "next_try", badDelay)
}

// aside are schedules that failed and could not be marked, in the memory of one
// processor. It is safe for concurrent use; the zero value is empty.
type aside struct {
	mu   sync.Mutex
	held map[int64]heldAside
}

type heldAside struct {
	failures int
	until    time.Time
}

// asideMemory is how long failures are remembered of a schedule that is not due any more, since it
// was deleted or changed.
const asideMemory = 10 * time.Minute

// failed counts a failure and returns how many there were in a row.
func (a *aside) failed(id int64) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held == nil {
		a.held = make(map[int64]heldAside)
	}
	h := a.held[id]
	h.failures, h.until = h.failures+1, time.Now()
	a.held[id] = h
	return h.failures
}

// put leaves a schedule alone for a while, which is longer with each failure, and
// returns how long that is.
func (a *aside) put(id int64) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.held[id]
	wait := min(time.Second<<min(max(h.failures, 1)-1, 10), badDelay)
	h.until = time.Now().Add(wait)
	a.held[id] = h
	return wait
}

func (a *aside) forget(ids ...int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range ids {
		delete(a.held, id)
	}
}

// waiting returns the schedules to leave alone now, and when the first of them is tried
// again; zero means that there is none.
func (a *aside) waiting(now time.Time) (ids []int64, next time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, h := range a.held {
		switch {
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
