package store

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// Steps returns the stored steps of a message; empty if it has none, or is gone.
func (s *ClaimStore) Steps(ctx context.Context, db bun.IDB, id int64) (string, error) {
	rows, err := read[[]string](ctx, s.tables, db, `SELECT COALESCE(steps, '') AS steps FROM {messages} WHERE id = ?`, id)
	if err != nil || len(rows) == 0 {
		return "", err
	}
	return rows[0], nil
}

// AddStep adds a line to the steps of a claimed message, unless the message is in another state than when
// the owner claimed it.
func (s *ClaimStore) AddStep(ctx context.Context, db *bun.DB, owner string, m dialect.Fenced, line string) (held bool, err error) {
	return retried(ctx, db, func(db bun.IDB) (bool, error) { return s.dialect.AddStep(ctx, db, owner, m, line) })
}
