package store

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// Messages lists pending messages by id, claimed or not.
func (s *Store) Messages(ctx context.Context, db bun.IDB) (rows []dialect.Message, err error) {
	err = db.NewSelect().TableExpr(s.names.Messages+" AS m").ColumnExpr(dialect.MessageColumns).OrderExpr("m.id").Scan(ctx, &rows)
	return rows, err
}
