package postgres

import (
	"context"
	"encoding/hex"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// insertSQL takes rows turned on their side: the server parses a few long literals in half
// the time that it takes for a list of values.
const insertSQL = `
INSERT INTO {messages} (message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after)
SELECT u.id, COALESCE(u.consumer, ''), COALESCE(u.kind, ''), COALESCE(u.payload, ''), NULLIF(u.headers, ''), NULLIF(u.key, ''), {now},
  COALESCE(NULLIF(u.at, '')::timestamptz, {now} + u.delay * interval '1 microsecond', {now})
FROM (SELECT ? AS id, ? AS consumer, ? AS kind, ? AS payload, ? AS headers, ? AS key, ? AS at, ? AS delay) u`

// fewRows are planned in less time as a list of values.
const fewRows = 6

func (p *database) insertQuery(ctx context.Context, db bun.IDB, rows []dialect.NewMessage, suffix string) *bun.RawQuery {
	if len(rows) <= fewRows {
		statement, values := p.InsertMessages(ctx, rows)
		return p.Query(ctx, db, statement+suffix, values...)
	}
	return p.Query(ctx, db, insertSQL+suffix, idColumn(rows),
		column(rows, "text", func(row *dialect.NewMessage) string { return row.ConsumerType }),
		column(rows, "text", func(row *dialect.NewMessage) string { return row.PayloadType }),
		column(rows, "text", func(row *dialect.NewMessage) string { return row.Payload }),
		column(rows, "text", func(row *dialect.NewMessage) string { return row.Headers }),
		column(rows, "text", func(row *dialect.NewMessage) string { return row.InsertID }),
		column(rows, "text", func(row *dialect.NewMessage) string {
			if row.AvailableAt.IsZero() {
				return ""
			}
			return timestamp(row.AvailableAt)
		}),
		column(rows, "bigint", func(row *dialect.NewMessage) int64 { return row.Delay.Microseconds() }))
}

// column is a value of each row. What all rows have in common is sent once, and what none
// has as NULL.
func column[T comparable](rows []dialect.NewMessage, sqlType string, of func(*dialect.NewMessage) T) any {
	var zero T
	first, same := of(&rows[0]), 1
	for same < len(rows) && of(&rows[same]) == first {
		same++
	}
	switch {
	case same < len(rows):
		values := make([]T, len(rows))
		for i := range rows {
			values[i] = of(&rows[i])
		}
		return bun.SafeQuery("unnest(?::"+sqlType+"[])", pgdialect.Array(values))
	case first == zero:
		return bun.Safe("NULL::" + sqlType)
	}
	return bun.SafeQuery("?::"+sqlType, first)
}

// idColumn is the one that makes the rows.
func idColumn(rows []dialect.NewMessage) bun.Safe {
	literal := append(make([]byte, 0, 33*len(rows)+20), "unnest('{"...)
	for i := range rows {
		if i > 0 {
			literal = append(literal, ',')
		}
		literal = hex.AppendEncode(literal, rows[i].MessageID[:])
	}
	return bun.Safe(append(literal, "}'::uuid[])"...))
}

func (p *database) Insert(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) error {
	_, err := p.insertQuery(ctx, db, rows, "").Exec(ctx)
	return err
}

func (p *database) InsertKeyed(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) (ids []uuid.UUID, err error) {
	err = p.insertQuery(ctx, db, rows, " ON "+dialect.OnPending+" RETURNING message_id").Scan(ctx, &ids)
	return ids, err
}
