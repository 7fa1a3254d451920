package ops

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"
)

// ErrBusy: others look already, or the database takes too long. What people look at must not be what
// hurts the database: use errors.Is, and try again.
var ErrBusy = errors.New("too much is asked at once")

// look runs reads of a principal who may do the action: two at a time, and for a second at most.
func look[T any](ctx context.Context, s *Seat, a Action, consumer string, fn func(ctx context.Context, db bun.IDB) (T, error)) (result T, err error) {
	if err := s.may(a, consumer); err != nil {
		return result, fmt.Errorf("ops: %s: %w", a, err)
	}
	return lookFor(ctx, s.desk, lookTime, fn)
}

// lookFor is look for a time.
func lookFor[T any](ctx context.Context, d *Desk, limit time.Duration, fn func(ctx context.Context, db bun.IDB) (T, error)) (result T, err error) {
	return lookIn(ctx, d, d.config.ReadDB, limit, fn)
}

// lookIn is lookFor in one of the databases.
func lookIn[T any](ctx context.Context, d *Desk, db *bun.DB, limit time.Duration, fn func(ctx context.Context, db bun.IDB) (T, error)) (result T, err error) {
	free := time.NewTimer(lookWait)
	defer free.Stop()
	select {
	case d.looks <- struct{}{}:
	case <-ctx.Done():
		return result, context.Cause(ctx)
	case <-free.C:
		return result, fmt.Errorf("ops: look: %w: nobody of the %d who may look was done within %s", ErrBusy, looksAtOnce, lookWait)
	}
	defer func() { <-d.looks }()
	within, cancel := context.WithTimeoutCause(ctx, limit, ErrBusy)
	defer cancel()
	err = d.store.Briefly(within, db, limit, func(db bun.IDB) (err error) {
		result, err = fn(within, db)
		return err
	})
	if err != nil && ctx.Err() == nil && context.Cause(within) == ErrBusy {
		err = fmt.Errorf("ops: look: %w: the database did not answer within %s", ErrBusy, limit)
	}
	return result, err
}
