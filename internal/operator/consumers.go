package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/minutes"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// Consumers shows and changes consumers. [Session.Consumers] returns it; it is safe for concurrent
// use.
type Consumers struct{ access *access }

// Minutes lists the last minutes of the named consumers, or of all if none are named.
func (s *Consumers) Minutes(ctx context.Context, within time.Duration, consumers ...string) (found []MinuteStats, err error) {
	if err := s.access.May(ops.View, consumers...); err != nil {
		return nil, fmt.Errorf("ops: minutes: %w", err)
	}
	err = s.access.Look(ctx, func(ctx context.Context, db bun.IDB) (err error) {
		found, err = minutes.Read(ctx, db, s.access.Store, within, consumers...)
		return err
	})
	return found, err
}

// Failures lists failure groups, the most recent first: of one consumer, or of all if consumer is
// empty. A principal that may not read contents sees no error texts.
func (s *Consumers) Failures(ctx context.Context, consumer string, limit int) ([]admin.FailureGroup, error) {
	found, err := look(ctx, s.access, ops.View, consumer, func(ctx context.Context, db bun.IDB) ([]admin.FailureGroup, error) {
		return s.access.Admin.Failures(ctx, db, consumer, limit)
	})
	return store.Each(found, func(f admin.FailureGroup) admin.FailureGroup { return failure(ctx, s.access, f) }), err
}

// failure redacts a failure group for the principal.
func failure(ctx context.Context, s *access, f admin.FailureGroup) admin.FailureGroup {
	f.Sample = s.Text(ctx, ops.Content{Consumer: f.Consumer}, f.Sample)
	return f
}

// Claims lists the processors' claims, the oldest first.
func (s *Consumers) Claims(ctx context.Context) ([]admin.Claim, error) {
	return look(ctx, s.access, ops.View, "", s.access.Pending.Claims)
}

// Crashes lists processes lost while they held a message, the most recent first. An id of 0 lists
// the crashes of all messages.
func (s *Messages) Crashes(ctx context.Context, id int64, limit int) ([]Crash, error) {
	found, err := look(ctx, s.access, ops.View, "", func(ctx context.Context, db bun.IDB) ([]Crash, error) {
		return s.access.Pending.Crashes(ctx, db, id, limit)
	})
	for _, c := range found {
		if id == 0 { // a listing of all
			break
		}
		if err := s.access.May(ops.View, c.Consumer); err != nil {
			return nil, fmt.Errorf("ops: crashes of %d: %w", id, err)
		}
	}
	return found, err
}

// BlockedKeys lists the keys that have been blocked the longest: of one consumer, or of all if consumer is empty.
func (s *Consumers) BlockedKeys(ctx context.Context, consumer string, limit int) ([]BlockedKey, error) {
	return look(ctx, s.access, ops.View, consumer, func(ctx context.Context, db bun.IDB) ([]BlockedKey, error) {
		return s.access.Pending.BlockedKeys(ctx, db, consumer, limit)
	})
}

// Pause stops claims of a consumer's messages until [Consumers.Resume]. The note is shown to other
// operators.
func (s *Consumers) Pause(ctx context.Context, consumer, note string) error {
	return s.change(ctx, ops.Pause, consumer, note, func(ctx context.Context, tx bun.Tx) error {
		return s.access.Admin.Pause(ctx, tx, consumer, admin.PauseNote{By: s.access.Actor, Reason: note})
	})
}

// Probe runs one message of a consumer whose circuit breaker is open. It returns admin.ErrNotOpen
// if the breaker is not open.
func (s *Consumers) Probe(ctx context.Context, consumer, reason string) error {
	return s.change(ctx, ops.Probe, consumer, reason, func(ctx context.Context, tx bun.Tx) error {
		return s.access.Admin.Probe(ctx, tx, consumer)
	})
}

// Resume lets a paused consumer's messages be claimed again. It returns admin.ErrNotPaused if the
// consumer is not paused.
func (s *Consumers) Resume(ctx context.Context, consumer, reason string) error {
	return s.change(ctx, ops.Resume, consumer, reason, func(ctx context.Context, tx bun.Tx) error {
		return s.access.Admin.Resume(ctx, tx, consumer)
	})
}

func (s *Consumers) change(ctx context.Context, a ops.Action, consumer, reason string, fn func(context.Context, bun.Tx) error) error {
	change := ops.Change{Action: a, Reason: reason, Target: ops.Target{Consumer: consumer}}
	return s.access.Change(ctx, change, func(ctx context.Context, tx bun.Tx, _ []int64) (int, error) { return 0, fn(ctx, tx) })
}
