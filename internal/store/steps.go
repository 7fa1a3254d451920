package store

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// Read returns the stored steps of a claimed message. It returns false if the message is gone or in another
// state than when it was claimed.
func (s *StepStore) Read(ctx context.Context, db bun.IDB, m dialect.Fenced) (text string, held bool, err error) {
	rows, err := read[[]string](ctx, s.tables, db,
		`SELECT COALESCE(steps, '') AS steps FROM {messages} WHERE id = ? AND attempts = ? AND crashes = ?`, m.ID, m.Attempts, m.Crashes)
	if err != nil || len(rows) == 0 {
		return "", false, err
	}
	return rows[0], true, nil
}

// Append adds a line to the steps of a claimed message, unless the message is in another state than when
// the owner claimed it.
func (s *StepStore) Append(ctx context.Context, db *bun.DB, owner string, m dialect.Fenced, line string) (held bool, err error) {
	return retried(ctx, db, func(db bun.IDB) (bool, error) { return s.dialect.AddStep(ctx, db, owner, m, line) })
}
