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

const supersedeSQL = `
DELETE FROM {messages} WHERE insert_id IS NOT NULL AND (insert_id, consumer_type) IN (SELECT j.value ->> 0, j.value ->> 1 FROM json_each(?) j)
RETURNING insert_id, consumer_type, created_at, available_after, {now} AS now`

func (s *database) Supersede(ctx context.Context, tx bun.IDB, keys []dialect.PendingKey) (gone []dialect.Superseded, err error) {
	pairs := dialect.Each(keys, func(k dialect.PendingKey) [2]string { return [2]string{k.InsertID, k.ConsumerType} })
	err = s.Query(ctx, tx, supersedeSQL, dialect.AsJSON(pairs)).Scan(ctx, &gone)
	return gone, err
}

func (s *database) Supersedes() error { return nil }
