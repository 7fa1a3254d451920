package mariadb

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// addStepSQL reads the claim as it is now: a subquery of an update locks what it reads. Who holds that lock
// waits for no message that is running.
const addStepSQL = `UPDATE {messages} m SET m.steps = CONCAT(COALESCE(m.steps, ''), ?)
WHERE m.id = ? AND m.attempts = ? AND m.crashes = ? AND EXISTS (
  SELECT 1 FROM {claims} c WHERE c.id = ? AND c.owner = ? AND JSON_CONTAINS(c.message_ids, CAST(m.id AS CHAR)))`

func (m *database) AddStep(ctx context.Context, db bun.IDB, owner string, message dialect.Fenced, line string) (bool, error) {
	n, err := m.Changed(ctx, db, addStepSQL, line, message.ID, message.Attempts, message.Crashes, message.Claim, owner)
	return n > 0, err
}
