package postgres

import (
	"context"
	"encoding/hex"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// insertSQL takes rows turned on their side, as arrays: the server parses a few
// long literals in half the time that it takes for a list of values. Arrays that
// are NULL, since no row has a value, are padded with NULL.
const insertSQL = `
INSERT INTO {messages} (message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after)
SELECT u.id, u.consumer, u.kind, u.payload, NULLIF(u.headers, ''), NULLIF(u.key, ''), {now},
  COALESCE(NULLIF(u.at, '')::timestamptz, {now} + u.delay * interval '1 microsecond', {now})
FROM unnest(?::uuid[], ?::text[], ?::text[], ?::text[], ?::text[], ?::text[], ?::text[], ?::bigint[])
  u(id, consumer, kind, payload, headers, key, at, delay)`

// newColumns are rows to be inserted, turned on their side. A column that no row
// has a value for stays nil.
type newColumns struct {
	ids                        []byte // as an array literal
	consumers, kinds, payloads []string
	headers, keys, instants    []string // empty stands for NULL
	delays                     []int64
}

func newColumnsOf(rows []dialect.NewMessage) newColumns {
	n := len(rows)
	c := newColumns{ids: make([]byte, 0, 33*n), consumers: make([]string, n), kinds: make([]string, n), payloads: make([]string, n)}
	for i, row := range rows {
		if i > 0 {
			c.ids = append(c.ids, ',')
		}
		c.ids = hex.AppendEncode(c.ids, row.MessageID[:])
		c.consumers[i], c.kinds[i], c.payloads[i] = row.ConsumerType, row.PayloadType, row.Payload
		enter(&c.headers, i, n, row.Headers)
		enter(&c.keys, i, n, row.InsertID)
		enter(&c.delays, i, n, row.Delay.Microseconds())
		if !row.AvailableAt.IsZero() {
			enter(&c.instants, i, n, timestamp(row.AvailableAt))
		}
	}
	return c
}

// enter puts a value into a column that is made when its first value comes.
func enter[T comparable](column *[]T, i, n int, value T) {
	var zero T
	if value == zero {
		return
	}
	if *column == nil {
		*column = make([]T, n)
	}
	(*column)[i] = value
}

func (p *database) insertQuery(ctx context.Context, db bun.IDB, rows []dialect.NewMessage, suffix string) *bun.RawQuery {
	c := newColumnsOf(rows)
	return p.Query(ctx, db, insertSQL+suffix, bun.Safe("'{"+string(c.ids)+"}'"), pgdialect.Array(c.consumers), pgdialect.Array(c.kinds),
		pgdialect.Array(c.payloads), pgdialect.Array(c.headers), pgdialect.Array(c.keys), pgdialect.Array(c.instants), pgdialect.Array(c.delays))
}

func (p *database) Insert(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) error {
	_, err := p.insertQuery(ctx, db, rows, "").Exec(ctx)
	return err
}

func (p *database) InsertKeyed(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) (ids []uuid.UUID, err error) {
	err = p.insertQuery(ctx, db, rows, " ON "+dialect.OnPending+" RETURNING message_id").Scan(ctx, &ids)
	return ids, err
}
