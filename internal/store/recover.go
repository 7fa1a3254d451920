package store

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// Recover ends claims that have outlived their lease and counts a crash on their messages. If the
// clock was set back, a claim expires after one full lease. A message whose solo claim brings it to
// maxCrashes is poisoned.
func (s *ClaimStore) Recover(ctx context.Context, db *bun.DB, maxCrashes int) (dialect.Recovered, error) {
	return retried(ctx, db, func(db bun.IDB) (dialect.Recovered, error) { return s.dialect.Recover(ctx, db, maxCrashes) })
}
