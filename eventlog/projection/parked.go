package projection

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/hooks"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Parked is an event that a projection has parked.
type Parked struct {
	Position int64     `json:"position"`
	Stream   string    `json:"stream"`
	Reason   string    `json:"reason,omitempty"`
	ParkedAt time.Time `json:"parked_at,omitzero"`
}

// Parked lists up to limit parked events of a projection's newest version, in order. limit is 1 or
// more. For an unknown name the error is [ErrUnknown].
func (r *Runner) Parked(ctx context.Context, name string, limit int) ([]Parked, error) {
	reader := r.byName[name]
	if reader == nil {
		return nil, fmt.Errorf("projection: parked events of %q: %w", name, r.unknown())
	}
	rows, err := r.store.Readers.Parked(ctx, r.db, name, reader.Version, 0, limit)
	if err != nil {
		return nil, fmt.Errorf("projection: parked events of %q: %w", name, dberr.Explained(err))
	}
	return store.Each(rows, newParked), nil
}

func newParked(row store.Parked) Parked {
	return Parked{Position: row.Position, Stream: row.Stream, Reason: row.Reason, ParkedAt: row.ParkedAt.Time}
}

// Package internal/projections calls these.
var _ = hooks.Provide(hooks.Functions{
	"projection.Newest": (*Runner).newest,
	"projection.Parked": newParked,
	"projection.Resume": resume,
	"projection.Unassigned": func(ctx context.Context, r *Runner) (int64, error) {
		n, err := r.store.Readers.Unnumbered(ctx, r.db, store.MostCounted)
		return n, dberr.Wrap(err, "projection: unassigned events")
	},
})

// RetryParked applies the parked events of a projection's newest version in order, each in its own
// transaction, and returns how many it applied. Given positions, it applies only those of them that
// are still parked. It stops at the first that fails again. Parked events are applied after later
// events of the log, including those of their own stream unless the whole stream was parked. For an
// unknown name the error is [ErrUnknown].
func (r *Runner) RetryParked(ctx context.Context, name string, positions ...int64) (n int, err error) {
	reader := r.byName[name]
	if reader == nil {
		return 0, fmt.Errorf("projection: retry parked events of %q: %w", name, r.unknown())
	}
	next := func() (position int64, found bool, err error) {
		rows, err := r.store.Readers.Parked(ctx, r.db, name, reader.Version, 0, 1)
		if err != nil || len(rows) == 0 {
			return 0, false, err
		}
		return rows[0].Position, true, nil
	}
	if len(positions) > 0 {
		left := slices.Sorted(slices.Values(positions))
		next = func() (position int64, found bool, err error) {
			if len(left) == 0 {
				return 0, false, nil
			}
			position, left = left[0], left[1:]
			return position, true, nil
		}
	}
	for {
		position, found, err := next()
		applied := false
		if found {
			applied, err = r.retry(ctx, reader, position)
		}
		if err != nil {
			return n, fmt.Errorf("projection: retry parked events of %q: %w", name, dberr.Explained(err))
		}
		if !found {
			return n, nil
		}
		if applied {
			n++
		}
	}
}

// retry applies one event under the locks of the whole projection, so that no later event of its
// stream is applied concurrently. It reports whether the event was parked.
func (r *Runner) retry(ctx context.Context, reader *reader, position int64) (ours bool, err error) {
	err = txn.RunOwn(ctx, r.db, func(ctx context.Context, tx bun.Tx) (err error) {
		if _, err := r.store.Readers.LockAll(ctx, tx, reader.Name, reader.Version); err != nil {
			return err
		}
		replay, found, err := r.store.Readers.Unpark(ctx, tx, reader.Name, reader.Version, position)
		if ours = found; err != nil || !found {
			return err
		}
		rows, err := r.store.EventLog.ReadEvents(ctx, tx, store.Page{After: position - 1, UpTo: position, Limit: 1})
		if err != nil || len(rows) == 0 { // the event was erased
			return err
		}
		rows[0].Replay = replay // as when it was parked
		b := &batch{shard: reader.shards[0], tx: tx}
		if b.sub.Session, err = r.store.Readers.Session(ctx, tx, b.Timeout+abandonGrace+statementTimeout); err != nil {
			return err
		}
		defer b.isolate.Dismiss()
		b.messages = append(b.messages, b.message(rows[0], true))
		return b.apply(ctx, nil)
	})
	return ours, err
}
