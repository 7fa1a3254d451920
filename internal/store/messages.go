package store

import (
	"context"

	"github.com/uptrace/bun"
)

// Messages lists pending messages by id, claimed or not.
func (s *Store) Messages(ctx context.Context, db bun.IDB) (rows []Message, err error) {
	err = db.NewSelect().TableExpr(s.names.messages+" AS m").ColumnExpr(messageColumns).OrderExpr("m.id").Scan(ctx, &rows)
	return rows, err
}
