package ops

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// ErrBusy: others look already, or the database takes too long, whether this process or the server gave it
// up. What people look at must not be what hurts the database: use errors.Is, and try again.
var ErrBusy = errors.New("too much is asked at once")

// look runs reads of a principal who may do the action: two at a time, and for [lookTime] at most.
func look[T any](ctx context.Context, s *Session, a Action, consumer string, fn func(ctx context.Context, db bun.IDB) (T, error)) (result T, err error) {
	if err := s.may(a, consumer); err != nil {
		return result, fmt.Errorf("ops: %s: %w", a, err)
	}
	return lookFor(ctx, s.service, lookTime, fn)
}

// lookFor is look for a time.
func lookFor[T any](ctx context.Context, d *Service, limit time.Duration, fn func(ctx context.Context, db bun.IDB) (T, error)) (result T, err error) {
	return lookIn(ctx, d, d.config.ReadDB, limit, fn)
}

// lookIn is lookFor in one of the databases.
func lookIn[T any](ctx context.Context, d *Service, db *bun.DB, limit time.Duration, fn func(ctx context.Context, db bun.IDB) (T, error)) (result T, err error) {
	leave, err := d.enter(ctx, d.looks, lookWait)
	if err != nil {
		return result, err
	}
	defer leave()
	return briefly(ctx, d, db, limit, fn)
}

// enter waits for a place in a room, where as many may look at once as there are.
func (d *Service) enter(ctx context.Context, room chan struct{}, patience time.Duration) (leave func(), err error) {
	free := time.NewTimer(patience)
	defer free.Stop()
	select {
	case room <- struct{}{}:
		return func() { <-room }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-free.C:
		return nil, fmt.Errorf("ops: look: %w: none of the %d concurrent queries was done within %s", ErrBusy, cap(room), patience)
	}
}

// briefly runs reads for a time, wherever they are entered.
func briefly[T any](ctx context.Context, d *Service, db *bun.DB, limit time.Duration, fn func(ctx context.Context, db bun.IDB) (T, error)) (result T, err error) {
	err = d.within(ctx, db, limit, func(ctx context.Context, db bun.IDB) (err error) {
		result, err = fn(ctx, db)
		return err
	})
	return result, err
}

func (d *Service) within(ctx context.Context, db *bun.DB, limit time.Duration, fn func(ctx context.Context, db bun.IDB) error) error {
	within, cancel := context.WithTimeoutCause(ctx, limit, ErrBusy)
	defer cancel()
	err := d.store.Briefly(within, db, limit, func(db bun.IDB) error { return fn(within, db) })
	if ctx.Err() == nil && (errors.Is(err, store.ErrLate) || err != nil && context.Cause(within) == ErrBusy) {
		err = fmt.Errorf("ops: look: %w: the database did not answer within %s", ErrBusy, limit)
	}
	return err
}
