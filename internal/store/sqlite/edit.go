package sqlite

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// LockPending locks nothing: the transaction has the write lock.
func (s *database) LockPending(_ context.Context, _ bun.Tx, _ bool, ids []int64) ([]int64, error) {
	return ids, nil
}

func (s *database) Requeue(ctx context.Context, tx bun.Tx, rows []dialect.Poisoned, how dialect.Requeuing) ([]dialect.Requeued, error) {
	return s.RequeueAs(ctx, tx, dialect.IDsOf(rows), how, "")
}

func (s *database) DeletePoisoned(ctx context.Context, db bun.IDB, ids []int64) (int, error) {
	return s.Changed(ctx, db, `DELETE FROM {poisoned} WHERE id IN (?)`, bun.List(ids))
}
