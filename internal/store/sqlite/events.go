package sqlite

import (
	"context"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// With one writer at a time, sequence numbers become visible in their order and
// have no gaps: they are the places.
func (s *database) Number(context.Context, *bun.DB, int) (int, error) { return 0, nil }

// newEvent is what an insert writes.
type newEvent struct {
	bun.BaseModel `bun:"table:events"`

	ID         uuid.UUID `bun:"event_id"`
	Stream     string    `bun:"stream"`
	Version    int64     `bun:"version"`
	Category   string    `bun:"category"`
	Slot       int       `bun:"slot"`
	Type       string    `bun:"event_type"`
	Schema     int       `bun:"schema"`
	Data       string    `bun:"data"`
	Headers    string    `bun:"headers,nullzero"`
	RecordedAt bun.Safe  `bun:"recorded_at"`
}

func (s *database) InsertEvents(ctx context.Context, tx bun.IDB, rows []*dialect.NewEvent) error {
	now := bun.Safe(s.Now(ctx))
	models := make([]newEvent, len(rows))
	for i, row := range rows {
		models[i] = newEvent{
			ID: row.ID, Stream: row.Stream, Version: row.Version, Category: row.Category, Slot: row.Slot,
			Type: row.Type, Schema: row.Schema, Data: row.Data, Headers: row.Headers, RecordedAt: now,
		}
	}
	var inserted []dialect.InsertedEvent
	err := tx.NewInsert().Model(&models).ModelTableExpr(s.Expand("{events}")).Returning("sequence, event_id").Scan(ctx, &inserted)
	if err != nil {
		return err
	}
	return dialect.NumberInserted(rows, inserted)
}

// AdvisoryLock has nothing to do: whoever writes is alone.
func (s *database) AdvisoryLock(context.Context, bun.IDB, string, bool) error { return nil }
