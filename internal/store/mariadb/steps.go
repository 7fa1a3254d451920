package mariadb

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// AddStep fences as a transactional consumer does: a subquery in an update would lock the claim.
func (m *database) AddStep(ctx context.Context, db bun.IDB, owner string, message dialect.Fenced, line string) (held bool, err error) {
	err = m.InTx(ctx, db, func(tx bun.IDB) error {
		ids, err := m.Fence(ctx, tx, dialect.Fence{Owner: owner, Messages: []dialect.Fenced{message}})
		if held = len(ids) > 0; err != nil || !held {
			return err
		}
		return m.Exec(ctx, tx, `UPDATE {messages} SET steps = CONCAT(COALESCE(steps, ''), ?) WHERE id = ?`, line, message.ID)
	})
	return held, err
}
