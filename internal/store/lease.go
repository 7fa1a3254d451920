package store

import (
	"context"
	"time"

	"github.com/uptrace/bun"
)

// Extend renews every claim of the owner and returns their ids. A missing claim was taken away. An
// id unknown to the caller belongs to a claim whose commit was never confirmed.
func (s *ClaimStore) Extend(ctx context.Context, db bun.IDB, owner string, lease time.Duration) ([]int64, error) {
	return retried(ctx, db, func(db bun.IDB) ([]int64, error) { return s.dialect.Extend(ctx, db, owner, lease) })
}

// Disclaim ends claims of the owner without touching their messages, which are
// available again at once.
func (s *ClaimStore) Disclaim(ctx context.Context, db bun.IDB, owner string, claims []int64) error {
	return retry(ctx, db, func(db bun.IDB) error { return s.dialect.Disclaim(ctx, db, owner, claims) })
}
