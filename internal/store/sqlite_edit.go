package store

import (
	"context"

	"github.com/uptrace/bun"
)

// lockPending need not: the transaction has the write lock.
func (s *sqlite) lockPending(_ context.Context, _ bun.Tx, _ bool, ids []int64) ([]int64, error) {
	return ids, nil
}

func (s *sqlite) requeue(ctx context.Context, tx bun.Tx, rows []Poisoned, how Requeuing) ([]pendingKey, error) {
	return s.requeueAs(ctx, tx, idsOf(rows), how, "")
}

func (s *sqlite) deletePoisoned(ctx context.Context, db bun.IDB, ids []int64) (int, error) {
	return affected(s.raw(ctx, db, `DELETE FROM {poisoned} WHERE id IN (?)`, bun.List(ids)).Exec(ctx))
}
