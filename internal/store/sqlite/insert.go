package sqlite

import (
	"context"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

func (s *database) Insert(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) error {
	statement, values := s.InsertMessages(ctx, rows)
	return s.Exec(ctx, db, statement, values...)
}

func (s *database) InsertKeyed(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) (ids []uuid.UUID, err error) {
	statement, values := s.InsertMessages(ctx, rows)
	err = s.Query(ctx, db, statement+" ON "+dialect.OnPending+" RETURNING message_id", values...).Scan(ctx, &ids)
	return ids, err
}

// Replace removes pending rows and writes new ones: there is no other writer meanwhile.
func (s *database) Replace(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) error {
	gone, err := s.Supersede(ctx, db, dialect.Each(rows, dialect.NewMessage.Key))
	if err != nil {
		return err
	}
	of := make(map[dialect.PendingKey]*dialect.NewMessage, len(rows))
	for i := range rows {
		of[rows[i].Key()] = &rows[i]
	}
	for _, old := range gone {
		of[dialect.PendingKey{InsertID: old.InsertID, ConsumerType: old.ConsumerType}].TakePlace(old)
	}
	if err := s.Insert(ctx, db, rows); err != nil {
		return err
	}
	for _, row := range rows {
		if row.Crashes == 0 {
			continue
		}
		err := s.Exec(ctx, db, `UPDATE {messages} SET crashes = crashes + ? WHERE insert_id = ? AND consumer_type = ?`, row.Crashes, row.InsertID, row.ConsumerType)
		if err != nil {
			return err
		}
	}
	return nil
}

const withdrawSQL = `
DELETE FROM {messages} WHERE insert_id IS NOT NULL AND (insert_id, consumer_type, message_id) IN (SELECT j.value ->> 0, j.value ->> 1, j.value ->> 2 FROM json_each(?) j)
RETURNING message_id`

func (s *database) Withdraw(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) (ids []uuid.UUID, err error) {
	list := dialect.Each(rows, func(row dialect.NewMessage) [3]string {
		return [3]string{row.InsertID, row.ConsumerType, row.MessageID.String()}
	})
	err = s.Query(ctx, db, withdrawSQL, dialect.AsJSON(list)).Scan(ctx, &ids)
	return ids, err
}

const supersedeSQL = `
DELETE FROM {messages} WHERE insert_id IS NOT NULL AND (insert_id, consumer_type) IN (SELECT j.value ->> 0, j.value ->> 1 FROM json_each(?) j)
RETURNING insert_id, consumer_type, created_at, available_after, crashes, id IN (` + heldSQL + `) AS held, {now} AS now`

func (s *database) Supersede(ctx context.Context, tx bun.IDB, keys []dialect.PendingKey) (gone []dialect.Superseded, err error) {
	pairs := dialect.Each(keys, func(k dialect.PendingKey) [2]string { return [2]string{k.InsertID, k.ConsumerType} })
	err = s.Query(ctx, tx, supersedeSQL, dialect.AsJSON(pairs)).Scan(ctx, &gone)
	return gone, err
}

func (s *database) Supersedes() error { return nil }

// Ranks returns none: messages get their ranks when they are written.
func (s *database) Ranks(context.Context, bun.IDB, int) ([]int64, error) { return nil, nil }
