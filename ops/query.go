package ops

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"
)

// ErrBusy is returned when too many queries run at once, or the database takes too long. The
// limits protect the database from operators' queries. Use errors.Is, and try again.
var ErrBusy = errors.New("too many concurrent queries, or the database is slow")

// look runs a query for a principal that may do the action: two at once, for at most [lookTime].
func look[T any](
	ctx context.Context, s access, a Action, consumer string, fn func(ctx context.Context, db bun.IDB) (T, error),
) (result T, err error) {
	if err := s.may(a, consumer); err != nil {
		return result, fmt.Errorf("ops: %s: %w", a, err)
	}
	return lookFor(ctx, s.service, lookTime, fn)
}

// lookFor is look with another time limit.
func lookFor[T any](
	ctx context.Context, s *Service, limit time.Duration, fn func(ctx context.Context, db bun.IDB) (T, error),
) (result T, err error) {
	return lookIn(ctx, s, s.config.ReadDB, limit, fn)
}

// lookIn is lookFor on one of the databases.
func lookIn[T any](
	ctx context.Context, s *Service, db *bun.DB, limit time.Duration, fn func(ctx context.Context, db bun.IDB) (T, error),
) (result T, err error) {
	leave, err := s.enter(ctx, s.looks, lookWait)
	if err != nil {
		return result, err
	}
	defer leave()
	return briefly(ctx, s, db, limit, fn)
}

// briefly runs a query with a time limit, without a slot.
func briefly[T any](
	ctx context.Context, s *Service, db *bun.DB, limit time.Duration, fn func(ctx context.Context, db bun.IDB) (T, error),
) (result T, err error) {
	err = s.within(ctx, db, limit, func(ctx context.Context, db bun.IDB) (err error) {
		result, err = fn(ctx, db)
		return err
	})
	return result, err
}
