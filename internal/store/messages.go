package store

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// Messages lists pending messages by id, claimed or not.
func (s *Store) Messages(ctx context.Context, db bun.IDB) (rows []dialect.Message, err error) {
	err = s.names.Query(ctx, db, `SELECT `+dialect.MessageColumns+` FROM {messages} m ORDER BY m.id`).Scan(ctx, &rows)
	return rows, err
}
