package postgres

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// insertSQL takes rows as columns: the server parses a few long literals in half the time of a list
// of values.
const insertSQL = `
INSERT INTO {messages} (message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after«, order_key, lane, rank»)
SELECT u.id, COALESCE(u.consumer, ''), COALESCE(u.kind, ''), COALESCE(u.payload, ''), NULLIF(u.headers, ''), NULLIF(u.key, ''), {now},
  ` + insertDueSQL + `«, u.order_key, u.lane, {place}»
FROM (SELECT ? AS id, ? AS consumer, ? AS kind, ? AS payload, ? AS headers, ? AS key, ? AS at, ? AS delay«, ? AS order_key, ? AS lane, ? AS rank») u`

const insertDueSQL = `COALESCE(NULLIF(u.at, '')::timestamptz, {now} + u.delay * interval '1 microsecond', {now})`

// A list of values takes less time if there are few rows, which are planned sooner, or large payloads:
// as elements of an array they would be escaped and parsed twice.
const (
	fewRows      = 6
	largePayload = 4 << 10 // bytes, on average
)

func asValues(rows []dialect.NewMessage) bool {
	bytes := 0
	for i := range rows {
		bytes += len(rows[i].Payload)
	}
	return len(rows) <= fewRows || bytes >= largePayload*len(rows) || rows[0].Priority > 0 || rows[0].GroupKey != ""
}

func (p *database) insertQuery(ctx context.Context, db bun.IDB, rows []dialect.NewMessage, suffix string) *bun.RawQuery {
	if asValues(rows) {
		statement, values := p.InsertMessages(ctx, rows)
		return p.Query(ctx, db, statement+suffix, values...)
	}
	values := []any{idColumn(rows),
		column(rows, "text", func(row *dialect.NewMessage) string { return row.ConsumerType }),
		column(rows, "text", func(row *dialect.NewMessage) string { return row.PayloadType }),
		column(rows, "text", func(row *dialect.NewMessage) string { return row.Payload }),
		column(rows, "text", func(row *dialect.NewMessage) string { return row.Headers }),
		column(rows, "text", func(row *dialect.NewMessage) string { return row.InsertID }),
		column(rows, "text", func(row *dialect.NewMessage) string { return timestampOrEmpty(row.AvailableAt) }),
		column(rows, "bigint", func(row *dialect.NewMessage) int64 { return row.Delay.Microseconds() })}
	if rows[0].OrderKey == "" {
		return p.Query(ctx, db, dialect.WithoutLanes(insertSQL)+suffix, values...)
	}
	values = append(values,
		column(rows, "text", func(row *dialect.NewMessage) string { return row.OrderKey }),
		column(rows, "bigint", func(row *dialect.NewMessage) int64 { return dialect.Lane(row.OrderKey) }),
		column(rows, "bigint", func(row *dialect.NewMessage) int64 { return row.Rank }))
	place := "COALESCE(u.rank, nextval('{ranks}'))"
	if rows[0].AnyOrder {
		place = micros(insertDueSQL)
	}
	return p.Query(ctx, db, strings.Replace(dialect.WithLanes(insertSQL), "{place}", place, 1)+suffix, values...)
}

// Ranks reserves places, because messages are not written in the order of the call.
func (p *database) Ranks(ctx context.Context, db bun.IDB, n int) (ranks []int64, err error) {
	err = p.Query(ctx, db, `SELECT nextval('{ranks}') FROM generate_series(1, ?)`, n).Scan(ctx, &ranks)
	return ranks, err
}

// column returns a value of each row. A value that all rows share is sent once, and one that no row
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

// idColumn returns the column that makes the rows.
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

// replaceSQL updates pending messages, including their ids, row by row. Producers of the same key
// wait for its row instead of deadlocking. The new message does not inherit the times of a claimed
// one.
const replaceSQL = ` ON CONFLICT (insert_id, consumer_type) WHERE insert_id IS NOT NULL DO UPDATE SET id = DEFAULT, message_id = EXCLUDED.message_id,
  priority = EXCLUDED.priority, payload_type = EXCLUDED.payload_type, payload = EXCLUDED.payload, headers = EXCLUDED.headers, attempts = 0, errors = NULL, steps = NULL,
  order_key = EXCLUDED.order_key, lane = EXCLUDED.lane, rank = EXCLUDED.rank, group_key = EXCLUDED.group_key,
  created_at = CASE WHEN m.id IN (` + heldSQL + `) THEN EXCLUDED.created_at ELSE LEAST(m.created_at, EXCLUDED.created_at) END,
  available_after = CASE WHEN m.id IN (` + heldSQL + `) THEN EXCLUDED.available_after
    ELSE ? END`

func (p *database) Replace(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) error {
	due := "GREATEST(m.available_after, EXCLUDED.available_after)"
	if most := rows[0].MaxPostponed; most > 0 {
		due = fmt.Sprintf("LEAST(%s, LEAST(m.created_at, EXCLUDED.created_at) + %d * interval '1 microsecond')", due, most.Microseconds())
	}
	statement, values := p.InsertMessages(ctx, rows)
	statement = strings.Replace(statement, "{messages} (", "{messages} AS m (", 1)
	replace := replaceSQL
	if rows[0].AnyOrder {
		replace = strings.Replace(replace, "rank = EXCLUDED.rank", "rank = ?", 1)
		values = append(values, bun.Safe(micros("CASE WHEN m.id IN ("+p.Expand(heldSQL)+") THEN EXCLUDED.available_after ELSE "+due+" END")))
	}
	return p.Exec(ctx, db, statement+replace, append(values, bun.Safe(due))...)
}

const withdrawSQL = `
DELETE FROM {messages} m USING unnest(?::text[], ?::text[], ?::uuid[]) k(insert_id, consumer, message_id)
WHERE m.insert_id = k.insert_id AND m.consumer_type = k.consumer AND m.message_id = k.message_id AND m.insert_id IS NOT NULL RETURNING m.message_id`

func (p *database) Withdraw(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) (ids []uuid.UUID, err error) {
	keys := dialect.Each(rows, dialect.NewMessage.Key)
	insertIDs, consumers := keyColumns(keys)
	messages := dialect.Each(rows, func(row dialect.NewMessage) string { return row.MessageID.String() })
	err = p.Query(ctx, db, withdrawSQL, insertIDs, consumers, pgdialect.Array(messages)).Scan(ctx, &ids)
	return ids, err
}

// keyColumns returns keys as columns.
func keyColumns(keys []dialect.PendingKey) (insertIDs, consumers any) {
	return pgdialect.Array(dialect.Each(keys, func(k dialect.PendingKey) string { return k.InsertID })),
		pgdialect.Array(dialect.Each(keys, func(k dialect.PendingKey) string { return k.ConsumerType }))
}

const supersedeSQL = `
WITH l AS MATERIALIZED (
  SELECT m.id FROM unnest(?::text[], ?::text[]) k(insert_id, consumer) JOIN {messages} m ON m.insert_id = k.insert_id AND m.consumer_type = k.consumer
  WHERE m.insert_id IS NOT NULL ORDER BY m.insert_id COLLATE "C", m.consumer_type COLLATE "C" FOR UPDATE OF m)
DELETE FROM {messages} m USING l WHERE m.id = l.id
RETURNING m.insert_id, m.consumer_type, m.created_at, m.available_after, m.crashes, m.id IN (` + heldSQL + `) AS held, {now} AS now`

func (p *database) Supersede(ctx context.Context, tx bun.IDB, keys []dialect.PendingKey) (gone []dialect.Superseded, err error) {
	insertIDs, consumers := keyColumns(keys)
	err = p.Query(ctx, tx, supersedeSQL, insertIDs, consumers).Scan(ctx, &gone)
	return gone, err
}

func (p *database) Supersedes() error { return nil }
