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
	if len(rows) <= fewRows || !rows[0].CreatedAt.IsZero() {
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

const supersedeSQL = `
WITH l AS MATERIALIZED (
  SELECT m.id FROM unnest(?::text[], ?::text[]) k(insert_id, consumer) JOIN {messages} m ON m.insert_id = k.insert_id AND m.consumer_type = k.consumer
  WHERE m.insert_id IS NOT NULL ORDER BY m.insert_id COLLATE "C", m.consumer_type COLLATE "C" FOR UPDATE OF m)
DELETE FROM {messages} m USING l WHERE m.id = l.id RETURNING m.insert_id, m.consumer_type, m.created_at, m.available_after, {now} AS now`

func (p *database) Supersede(ctx context.Context, tx bun.IDB, keys []dialect.PendingKey) (gone []dialect.Superseded, err error) {
	insertIDs, consumers := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		insertIDs[i], consumers[i] = k.InsertID, k.ConsumerType
	}
	err = p.Query(ctx, tx, supersedeSQL, pgdialect.Array(insertIDs), pgdialect.Array(consumers)).Scan(ctx, &gone)
	return gone, err
}

func (p *database) Supersedes() error { return nil }
