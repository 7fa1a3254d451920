package ops

import (
	"context"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// Preview is what an operation would change, as it was planned.
type Preview struct {
	// UpTo is the highest id that it changes: what comes later is not part of it.
	UpTo int64 `json:"up_to,omitempty"`
	// Messages are how many match, up to 10,000; More tells that there are more.
	Messages int  `json:"messages"`
	More     bool `json:"more,omitempty"`
	// Poisoned says more of poisoned messages.
	Poisoned *poison.Preview `json:"poisoned,omitempty"`
}

const mostPreviewed = 10_000

// kind is an action that an operation carries out.
type kind struct {
	check   func(Target) error
	preview func(ctx context.Context, d *Desk, target *Target) (Preview, error)
	// step changes the next messages. Where doing so again does no harm it is repeatable, and given no
	// transaction.
	step       func(ctx context.Context, d *Desk, db bun.IDB, s step) (moved, error)
	repeatable bool
	// apply is in place of steps, where it takes the application's code.
	apply func(ctx context.Context, r *projection.Runner, target Target) (int, error)
}

// step is a part of an operation.
type step struct {
	row    store.Operation
	target Target
	limit  int
}

// kinds are the actions that operations carry out.
func kinds() map[Action]kind {
	return map[Action]kind{
		Requeue: {check: ofPoisoned, preview: previewPoisoned, step: requeue},
		Discard: {check: ofPoisoned, preview: previewPoisoned, step: discard},
		Cancel: {check: ofPending, preview: previewPending, repeatable: true, step: func(ctx context.Context, d *Desk, db bun.IDB, s step) (moved, error) {
			return movedPending(d.admin.CancelWhere(ctx, db, s.pending()))
		}},
		Reschedule: {check: later, preview: previewPending, repeatable: true, step: func(ctx context.Context, d *Desk, db bun.IDB, s step) (moved, error) {
			return movedPending(d.admin.RescheduleWhere(ctx, db, s.target.At, s.pending()))
		}},
		RunNow: {check: ofPending, preview: previewPending, repeatable: true, step: func(ctx context.Context, d *Desk, db bun.IDB, s step) (moved, error) {
			return movedPending(d.admin.RescheduleWhere(ctx, db, s.row.Now.Time, s.pending()))
		}},
		RetryParked: {check: ofProjection, preview: nothingToSee, apply: func(ctx context.Context, r *projection.Runner, t Target) (int, error) {
			return r.RetryParked(ctx, t.Projection)
		}},
		Rebuild: {check: ofProjection, preview: nothingToSee, apply: func(ctx context.Context, r *projection.Runner, t Target) (int, error) {
			return 0, r.Rebuild(ctx, t.Projection)
		}},
		Promote: {check: ofProjection, preview: nothingToSee, apply: func(ctx context.Context, r *projection.Runner, t Target) (int, error) {
			return 0, r.Promote(ctx, t.Projection, t.Version, promoteLag)
		}},
	}
}

// promoteLag is how far a version that is promoted may be behind, in positions.
const promoteLag = 1000

var errTarget = fmt.Errorf("%w: the target", bus.ErrBadOption) // immutable

func ofPoisoned(t Target) error {
	if t.Poisoned == nil {
		return fmt.Errorf("%w names no poisoned messages", errTarget)
	}
	return nil
}

func ofPending(t Target) error {
	if t.Pending == nil {
		return fmt.Errorf("%w names no pending messages", errTarget)
	}
	return nil
}

func later(t Target) error {
	if t.At.IsZero() {
		return fmt.Errorf("%w says no time", errTarget)
	}
	return ofPending(t)
}

func ofProjection(t Target) error {
	if t.Projection == "" {
		return fmt.Errorf("%w names no projection", errTarget)
	}
	return nil
}

func previewPoisoned(ctx context.Context, d *Desk, t *Target) (Preview, error) {
	p, err := d.poisoned.Preview(ctx, d.config.DB, *t.Poisoned, mostPreviewed)
	if err != nil {
		return Preview{}, err
	}
	if p.UpTo == 0 {
		return Preview{}, ErrNothing
	}
	pinned := *t.Poisoned
	if pinned.PoisonedBefore.IsZero() || pinned.PoisonedBefore.After(p.At) {
		pinned.PoisonedBefore = p.At
	}
	t.Poisoned = &pinned
	return Preview{UpTo: p.UpTo, Messages: p.Messages, More: p.More, Poisoned: &p}, nil
}

func previewPending(ctx context.Context, d *Desk, t *Target) (Preview, error) {
	p, err := d.admin.Preview(ctx, d.config.DB, *t.Pending, mostPreviewed)
	if err == nil && p.Messages == 0 {
		err = ErrNothing
	}
	return Preview{UpTo: p.UpTo, Messages: p.Messages, More: p.More}, err
}

// ErrNothing: no message matches; use errors.Is.
var ErrNothing = errors.New("nothing matches")

func nothingToSee(context.Context, *Desk, *Target) (Preview, error) { return Preview{}, nil }

func (s step) poisoned() poison.Batch {
	return poison.Batch{Filter: *s.target.Poisoned, After: s.row.AfterID, UpTo: s.row.UpToID, Limit: s.limit}
}

func requeue(ctx context.Context, d *Desk, db bun.IDB, s step) (moved, error) {
	done, err := d.poisoned.RequeueBatch(ctx, db, s.poisoned())
	return moved{last: done.Last, end: done.Last == 0, changed: done.Requeued, alone: done.Conflicts, ids: store.Each(done.Moved, func(m poison.Moved) int64 { return m.New })}, err
}

func discard(ctx context.Context, d *Desk, db bun.IDB, s step) (moved, error) {
	n, last, err := d.poisoned.DiscardBatch(ctx, db, s.poisoned())
	return moved{last: last, end: last == 0, changed: n}, err
}

// pending is the next batch. An age counts from when the operation was planned.
func (s step) pending() outbox.Batch {
	filter := *s.target.Pending
	if filter.OlderThan > 0 {
		filter.OlderThan += s.row.Now.Sub(s.row.CreatedAt.Time)
	}
	return outbox.Batch{Filter: filter, After: s.row.AfterID, UpTo: s.row.UpToID, Limit: s.limit}
}

func movedPending(done outbox.BatchResult, err error) (moved, error) {
	return moved{last: done.Last, end: !done.More, changed: done.Changed, alone: len(done.Running)}, err
}
