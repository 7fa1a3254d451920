package operator

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/opsaccess"
	"github.com/asyncmonolith/asyncmonolith-go/internal/poisoned"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// Poisoned shows and changes poisoned messages. [Session.Poisoned] returns it; it is safe for
// concurrent use.
type Poisoned struct{ access *access }

// Groups returns groups of poisoned messages, the most recent failure first, and whether
// there are more: see poison.Store.Groups. An empty consumer means all.
func (s *Poisoned) Groups(ctx context.Context, consumer string) (groups []poison.Group, more bool, err error) {
	groups, err = look(ctx, s.access, ops.View, consumer, func(ctx context.Context, db bun.IDB) (groups []poison.Group, err error) {
		groups, more, err = s.access.Poisoned.Groups(ctx, db, consumer)
		return groups, err
	})
	for i, g := range groups {
		if g.Failure != nil {
			f := failure(ctx, s.access, *g.Failure)
			groups[i].Failure = &f
		}
	}
	return groups, more, err
}

// List lists poisoned messages without contents, the newest first. next is the
// following page, or nil if there is none. A filter by [poison.Filter].Error needs the right to
// read contents: see [ops.ErrRedacted].
func (s *Poisoned) List(ctx context.Context, filter poison.Filter, page admin.Page) (found []poison.Message, next *admin.Page, err error) {
	if err := s.access.MaySearch(ctx, filter, nil); err != nil {
		return nil, nil, fmt.Errorf("ops: poisoned messages: %w", err)
	}
	found, err = look(ctx, s.access, ops.View, filter.Consumer, func(ctx context.Context, db bun.IDB) (found []poison.Message, err error) {
		page.Brief = true
		found, next, err = s.access.Poisoned.List(ctx, db, filter, page)
		return found, err
	})
	for i := range found {
		found[i].Reason = s.reason(ctx, found[i])
	}
	return found, next, err
}

// Count counts matching poisoned messages, up to 10,000. It filters as
// [Poisoned.List] does.
func (s *Poisoned) Count(ctx context.Context, filter poison.Filter) (int, error) {
	if err := s.access.MaySearch(ctx, filter, nil); err != nil {
		return 0, fmt.Errorf("ops: count poisoned: %w", err)
	}
	return look(ctx, s.access, ops.View, filter.Consumer, func(ctx context.Context, db bun.IDB) (int, error) {
		return s.access.Poisoned.CountUpTo(ctx, db, filter, opsaccess.MostPreviewed)
	})
}

// PoisonedMessage is a poisoned message as the principal may see it.
type PoisonedMessage struct {
	poison.Message
	// Hidden is true if the payload, the headers and the error texts are not shown. In an export it is also true if a part of
	// them is not.
	Hidden bool `json:"hidden,omitempty"`
}

// Get returns one poisoned message with the first 64 KiB of its payload, or
// poison.ErrNotFound.
func (s *Poisoned) Get(ctx context.Context, id int64) (PoisonedMessage, error) {
	found, err := look(ctx, s.access, ops.View, "", func(ctx context.Context, db bun.IDB) (poison.Message, error) {
		return s.access.Poisoned.GetHead(ctx, db, id, headBytes)
	})
	if err != nil {
		return PoisonedMessage{}, err
	}
	if err := s.access.May(ops.View, found.Consumer); err != nil {
		return PoisonedMessage{}, err
	}
	return s.poisoned(ctx, found), nil
}

func (s *Poisoned) poisoned(ctx context.Context, m poison.Message) PoisonedMessage {
	c, shown := s.access.Shown(ctx, content(m.Consumer, m.PayloadType, m.Payload, m.Headers, m.Errors))
	m.Reason = s.reason(ctx, m)
	m.Payload, m.Headers, m.Errors = c.Payload, c.Headers, withTexts(m.Errors, c.Errors)
	return PoisonedMessage{Message: m, Hidden: !shown}
}

// whole reports whether all contents of a message are seen.
func whole(seen, m poison.Message) bool {
	return bytes.Equal(seen.Payload, m.Payload) && maps.Equal(seen.Headers, m.Headers) && seen.Reason == m.Reason &&
		slices.EqualFunc(seen.Errors, m.Errors, func(a, b admin.Attempt) bool { return a.Error == b.Error })
}

// reason redacts why a message was poisoned, which may quote its error.
func (s *Poisoned) reason(ctx context.Context, m poison.Message) string {
	return s.access.Text(ctx, ops.Content{Consumer: m.Consumer, PayloadType: m.PayloadType}, m.Reason)
}

// Requeue makes poisoned messages pending again and returns their new ids. Result.Unhandled counts
// those without a consumer in this program. It accepts 1 to 500 ids; otherwise the error is
// bus.ErrInvalidOption. Use [ops.Operations.Plan] for more.
func (s *Poisoned) Requeue(ctx context.Context, reason string, ids ...int64) (result poisoned.ChunkResult, err error) {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	change := ops.Change{Action: ops.Requeue, Reason: reason, Target: ops.Target{IDs: ids}}
	err = s.access.Change(ctx, change, func(ctx context.Context, tx bun.Tx, ours []int64) (int, error) {
		if result = (poisoned.ChunkResult{}); len(ours) > 0 { // an empty filter would select all
			chunk := poisoned.Chunk{Filter: poison.Filter{IDs: ours}, UpTo: math.MaxInt64, Limit: opsaccess.MostIDs}
			result, err = s.access.Poisoned.RequeueChunk(ctx, tx, chunk)
		}
		result.Missing = len(ids) - result.Requeued - result.Conflicts
		return result.Requeued, err
	})
	if err != nil {
		return poisoned.ChunkResult{}, err
	}
	return result, nil
}

// Discard deletes poisoned messages for good and returns how many it deleted. It accepts 1 to 500
// ids; otherwise the error is bus.ErrInvalidOption. Use [ops.Operations.Plan] for more.
func (s *Poisoned) Discard(ctx context.Context, reason string, ids ...int64) (discarded int, err error) {
	change := ops.Change{Action: ops.Discard, Reason: reason, Target: ops.Target{IDs: ids}}
	err = s.access.Change(ctx, change, func(ctx context.Context, tx bun.Tx, ids []int64) (int, error) {
		discarded, err = s.access.Poisoned.Discard(ctx, tx, ids...)
		return discarded, err
	})
	return discarded, err
}

// RequeueResult is the outcome of [Poisoned.Requeue].
type RequeueResult = poisoned.ChunkResult

// Edit lists the fields in which an edited payload differs.
type Edit = poisoned.Edit

// CheckEdit returns which fields of an edited payload the consumer does not know, and which are
// missing: see poisoned.Store.CheckEdit.
func (s *Poisoned) CheckEdit(ctx context.Context, id int64, text []byte) (Edit, error) {
	if err := s.editable(ctx, id); err != nil {
		return Edit{}, err
	}
	return look(ctx, s.access, ops.Edit, "", func(ctx context.Context, db bun.IDB) (Edit, error) {
		return s.access.Poisoned.CheckEdit(ctx, db, id, text)
	})
}

// EditAndRequeue requeues a poisoned message with another payload: see
// poisoned.Store.EditAndRequeueText. It returns [ops.ErrRedacted] if part of the payload is hidden from
// the principal.
func (s *Poisoned) EditAndRequeue(ctx context.Context, reason string, id int64, text []byte) error {
	if err := s.editable(ctx, id); err != nil {
		return err
	}
	return s.access.Change(
		ctx,
		ops.Change{Action: ops.Edit, Reason: reason, Target: ops.Target{IDs: []int64{id}}},
		func(ctx context.Context, tx bun.Tx, ids []int64) (int, error) {
			if len(ids) == 0 {
				return 0, poison.ErrNotFound
			}
			return 1, s.access.Poisoned.EditAndRequeueText(ctx, tx, id, text)
		},
	)
}

// editable returns an error unless the principal may edit a message and sees all of its payload.
func (s *Poisoned) editable(ctx context.Context, id int64) error {
	m, err := look(ctx, s.access, ops.Edit, "", func(ctx context.Context, db bun.IDB) (poison.Message, error) {
		return s.access.Poisoned.Get(ctx, db, id)
	})
	if err != nil {
		return err
	}
	if err := s.access.May(ops.Edit, m.Consumer); err != nil {
		return fmt.Errorf("ops: edit %d: %w", id, err)
	}
	c, shown := s.access.Shown(ctx, content(m.Consumer, m.PayloadType, m.Payload, m.Headers, m.Errors))
	if !shown || string(c.Payload) != string(m.Payload) {
		return fmt.Errorf("ops: edit %d: %w", id, ops.ErrRedacted)
	}
	return nil
}

// Export calls fn with each matching poisoned message, in the order of their ids, and returns how
// many there were. The export is audited. It ends with [ops.ErrForbidden] at the first message of a
// consumer that the principal may not export.
func (s *Poisoned) Export(
	ctx context.Context, reason string, filter poison.Filter, fn func(PoisonedMessage) error,
) (exported int, err error) {
	if err := s.access.MaySearch(ctx, filter, nil); err != nil {
		return 0, fmt.Errorf("ops: export: %w", err)
	}
	change := ops.Change{Action: ops.Export, Reason: reason, Target: ops.Target{Poisoned: &filter}}
	err = s.access.ChangeAfter(ctx, change, func(ctx context.Context, _ *bun.DB, _ []int64) (int, error) {
		exported, err = s.access.Poisoned.Export(ctx, s.access.ReadDB, filter, func(m poison.Message) error {
			if err := s.access.May(ops.Export, m.Consumer); err != nil {
				return err
			}
			seen := s.poisoned(ctx, m)
			seen.Hidden = seen.Hidden || !whole(seen.Message, m)
			return fn(seen)
		})
		return exported, err
	})
	return exported, err
}
