package sqlite

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// AssignPositions has nothing to do. With one writer at a time, sequence numbers become visible in their
// order and have no gaps: they are the places.
func (s *database) AssignPositions(context.Context, *bun.DB, int) (int, error) { return 0, nil }

func (s *database) InsertEvents(ctx context.Context, tx bun.IDB, rows []*dialect.NewEvent) error {
	values := make([]any, 0, 9*len(rows))
	for _, row := range rows {
		values = append(
			values, row.ID, row.Stream, row.Version, row.Category, row.Slot, row.Type, row.Schema, row.Data, bun.NullZero(row.Headers),
		)
	}
	var inserted []dialect.InsertedEvent
	err := s.Query(ctx, tx, `INSERT INTO {events} (event_id, stream, version, category, slot, event_type, schema, data, headers, recorded_at) VALUES `+
		dialect.Rows("(?, ?, ?, ?, ?, ?, ?, ?, ?, {now})", len(rows))+` RETURNING sequence, event_id`, values...).
		Scan(ctx, &inserted)
	if err != nil {
		return err
	}
	return dialect.NumberInserted(rows, inserted)
}

// AdvisoryLock has nothing to do: there is only one writer.
func (s *database) AdvisoryLock(context.Context, bun.IDB, string, bool) error { return nil }
