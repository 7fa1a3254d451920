package sqlite

import (
	"context"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// newMessage is what an insert writes; every other column has a default. The
// instants are expressions, since the clock is the database's.
type newMessage struct {
	bun.BaseModel `bun:"table:consumer_messages"`

	MessageID      uuid.UUID `bun:"message_id"`
	ConsumerType   string    `bun:"consumer_type"`
	PayloadType    string    `bun:"payload_type"`
	Payload        string    `bun:"payload"`
	Headers        string    `bun:"headers,nullzero"`
	InsertID       string    `bun:"insert_id,nullzero"`
	CreatedAt      bun.Safe  `bun:"created_at"`
	AvailableAfter bun.Safe  `bun:"available_after"`
}

// insertQuery writes rows as a list of values.
func (s *database) insertQuery(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) *bun.InsertQuery {
	now := bun.Safe(s.Now(ctx))
	models := make([]newMessage, len(rows))
	for i, row := range rows {
		models[i] = newMessage{
			MessageID: row.MessageID, ConsumerType: row.ConsumerType, PayloadType: row.PayloadType,
			Payload: row.Payload, Headers: row.Headers, InsertID: row.InsertID, CreatedAt: now, AvailableAfter: now,
		}
		switch {
		case !row.AvailableAt.IsZero():
			models[i].AvailableAfter = bun.Safe(s.At(row.AvailableAt))
		case row.Delay > 0:
			models[i].AvailableAfter = bun.Safe(s.After(ctx, row.Delay))
		}
	}
	return db.NewInsert().Model(&models).ModelTableExpr(s.Messages)
}

func (s *database) Insert(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) error {
	_, err := s.insertQuery(ctx, db, rows).Returning("NULL").Exec(ctx)
	return err
}

func (s *database) InsertKeyed(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) (ids []uuid.UUID, err error) {
	err = s.insertQuery(ctx, db, rows).On(dialect.OnPending).Returning("message_id").Scan(ctx, &ids)
	return ids, err
}
