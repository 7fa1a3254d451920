package sqlite

import (
	"context"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

func (s *database) Insert(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) error {
	statement, values := s.InsertMessages(ctx, rows)
	_, err := s.Query(ctx, db, statement, values...).Exec(ctx)
	return err
}

func (s *database) InsertKeyed(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) (ids []uuid.UUID, err error) {
	statement, values := s.InsertMessages(ctx, rows)
	err = s.Query(ctx, db, statement+" ON "+dialect.OnPending+" RETURNING message_id", values...).Scan(ctx, &ids)
	return ids, err
}
