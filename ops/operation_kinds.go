package ops

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/internal/poisoned"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// kind defines an action that operations can carry out.
type kind struct {
	check   func(Target) error
	preview func(ctx context.Context, d *Service, target *Target) (Preview, error)
	// step changes the next messages, in a transaction that has locked the operation.
	step func(ctx context.Context, d *Service, tx bun.Tx, s step) (moved, error)
	// apply replaces step if the application's code is needed.
	apply func(ctx context.Context, r *projection.Runner, target pinnedTarget) (int, error)
}

type step struct {
	row    store.Operation
	target pinnedTarget
	limit  int
}

// kinds are the actions that operations carry out.
func kinds() map[Action]kind {
	return map[Action]kind{
		Requeue: {check: ofPoisoned, preview: previewPoisoned, step: requeue},
		Discard: {check: ofPoisoned, preview: previewPoisoned, step: discard},
		Cancel: {check: ofPending, preview: previewPending, step: func(ctx context.Context, d *Service, tx bun.Tx, s step) (moved, error) {
			return s.changePending(ctx, d, tx, func(ids []int64) (admin.Result, error) { return d.admin.Cancel(ctx, tx, ids...) })
		}},
		Reschedule: {check: later, preview: previewPending, step: func(ctx context.Context, d *Service, tx bun.Tx, s step) (moved, error) {
			return s.changePending(ctx, d, tx, func(ids []int64) (admin.Result, error) { return d.admin.Reschedule(ctx, tx, s.target.At, ids...) })
		}},
		RunNow: {check: ofPending, preview: previewPending, step: func(ctx context.Context, d *Service, tx bun.Tx, s step) (moved, error) {
			return s.changePending(ctx, d, tx, func(ids []int64) (admin.Result, error) { return d.admin.RunNow(ctx, tx, ids...) })
		}},
		RetryParked: {
			check:   ofProjection,
			preview: previewParked,
			apply: func(ctx context.Context, r *projection.Runner, t pinnedTarget) (int, error) {
				if len(t.Pinned) == 0 { // nothing was parked
					return 0, nil
				}
				return r.RetryParked(ctx, t.Projection, t.Pinned...)
			},
		},
		Rebuild: {
			check:   ofProjection,
			preview: previewProjection,
			apply: func(ctx context.Context, r *projection.Runner, t pinnedTarget) (int, error) {
				return 0, r.Rebuild(ctx, t.Projection)
			},
		},
		Promote: {
			check:   ofVersion,
			preview: previewProjection,
			apply: func(ctx context.Context, r *projection.Runner, t pinnedTarget) (int, error) {
				return 0, r.Promote(ctx, t.Projection, t.Version, promoteLag)
			},
		},
	}
}

// promoteLag is how many positions a promoted version may be behind.
const promoteLag = 1000

var errTarget = fmt.Errorf("%w: the target", bus.ErrInvalidOption) // immutable

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
		return fmt.Errorf("%w has no time", errTarget)
	}
	return ofPending(t)
}

func ofProjection(t Target) error {
	if t.Projection == "" {
		return fmt.Errorf("%w names no projection", errTarget)
	}
	return nil
}

func ofVersion(t Target) error {
	if t.Version < 1 {
		return fmt.Errorf("%w names no version", errTarget)
	}
	return ofProjection(t)
}

// next returns the ids of the next messages, the last of them, and whether there are more.
func (s step) next() (ids []int64, last int64, more bool) {
	ids, more = s.target.Pinned.behind(s.row.AfterID, s.limit)
	if len(ids) > 0 {
		last = ids[len(ids)-1]
	}
	return ids, last, more
}

// consumers are those that the plan names and Allow accepted at the start. Other consumers are not
// changed, even if their messages arrived since.
func (s step) consumers() []string { return newOperation(s.row).consumers() }

// inChunk changes the next poisoned messages, all of which may be gone.
func (s step) inChunk(change func(chunk poisoned.Chunk) (moved, error)) (done moved, err error) {
	ids, last, more := s.next()
	if len(ids) == 0 { // a chunk without ids would be of all
		return moved{end: true}, nil
	}
	done, err = change(poisoned.Chunk{Filter: poison.Filter{IDs: ids}, UpTo: last, Limit: s.limit, Consumers: s.consumers()})
	done.last, done.end = last, !more
	return done, err
}

func requeue(ctx context.Context, d *Service, tx bun.Tx, s step) (moved, error) {
	return s.inChunk(func(chunk poisoned.Chunk) (moved, error) {
		done, err := d.poisoned.RequeueChunk(ctx, tx, chunk)
		return moved{
			changed: done.Requeued, alone: done.Conflicts,
			ids: store.Each(done.Moved, func(m poisoned.Moved) int64 { return m.New }),
		}, err
	})
}

func discard(ctx context.Context, d *Service, tx bun.Tx, s step) (moved, error) {
	return s.inChunk(func(chunk poisoned.Chunk) (moved, error) {
		n, _, err := d.poisoned.DiscardChunk(ctx, tx, chunk)
		return moved{changed: n}, err
	})
}

func (s step) changePending(ctx context.Context, d *Service, tx bun.Tx, change func(ids []int64) (admin.Result, error)) (moved, error) {
	ids, last, more := s.next()
	ours, others, err := d.store.Pending.PendingOf(ctx, tx, ids, s.consumers())
	if err != nil {
		return moved{}, err
	}
	done, err := change(ours)
	return moved{last: last, end: !more, changed: done.Changed, alone: len(done.Running) + others}, err
}
