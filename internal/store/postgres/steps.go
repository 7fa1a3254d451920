package postgres

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

const addStepSQL = `UPDATE {messages} AS m SET steps = COALESCE(m.steps, '') || ?
WHERE m.id = ? AND m.attempts = ? AND m.crashes = ? AND EXISTS (
  SELECT 1 FROM {claims} c WHERE c.id = ? AND c.owner = ? AND m.id = ANY(c.message_ids))`

func (p *database) AddStep(ctx context.Context, db bun.IDB, owner string, m dialect.Fenced, line string) (bool, error) {
	n, err := p.Changed(ctx, db, addStepSQL, line, m.ID, m.Attempts, m.Crashes, m.Claim, owner)
	return n > 0, err
}
