package postgres

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// lockPendingSQL also returns whether the transaction, which may be the caller's, would see the
// newest claims. It does not lock claimed messages: the transaction may take any time, in which
// their claims could not be settled.
const lockPendingSQL = `SELECT id, current_setting('transaction_isolation') AS isolation FROM {messages}
	WHERE id IN (?) AND id NOT IN (` + heldSQL + `) ORDER BY id FOR UPDATE SKIP LOCKED`

func (p *database) LockPending(ctx context.Context, tx bun.Tx, callers bool, ids []int64) ([]int64, error) {
	if !callers {
		if _, err := tx.NewRaw(preambleSQL).Exec(ctx); err != nil {
			return nil, fmt.Errorf("preamble: %w", err)
		}
	}
	var rows []struct {
		ID        int64
		Isolation string
	}
	err := p.Query(ctx, tx, lockPendingSQL, bun.List(ids)).Scan(ctx, &rows)
	locked := make([]int64, len(rows))
	for i, row := range rows {
		if row.Isolation != "read committed" {
			return nil, fmt.Errorf(
				"%w: isolation level %s would not see the newest claims: read committed is allowed", bus.ErrInvalidOption,
				row.Isolation,
			)
		}
		locked[i] = row.ID
	}
	return locked, err
}

// Requeue sorts as producers do, by bytes.
func (p *database) Requeue(ctx context.Context, tx bun.Tx, rows []dialect.Poisoned, how dialect.Requeuing) ([]dialect.Requeued, error) {
	return p.RequeueAs(ctx, tx, dialect.IDsOf(rows), how, ` COLLATE "C"`)
}

const deletePoisonedSQL = `DELETE FROM {poisoned} WHERE id IN (SELECT id FROM {poisoned} WHERE id IN (?) ORDER BY id FOR UPDATE)`

func (p *database) DeletePoisoned(ctx context.Context, db bun.IDB, ids []int64) (int, error) {
	return p.Changed(ctx, db, deletePoisonedSQL, bun.List(ids))
}
