package postgres

import (
	"context"
	"encoding/hex"
	"fmt"
	"hash/fnv"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// insertEventsSQL inserts in the order of the arrays, so that sequence numbers ascend in it.
const insertEventsSQL = `
INSERT INTO {events} (event_id, stream, version, category, slot, event_type, schema, data, headers, recorded_at)
SELECT u.id, u.stream, u.version, u.category, u.slot, u.type, u.schema, u.data, NULLIF(u.headers, ''), {now}
FROM unnest(?::uuid[], ?::text[], ?::bigint[], ?::text[], ?::smallint[], ?::text[], ?::smallint[], ?::text[], ?::text[])
  WITH ORDINALITY u(id, stream, version, category, slot, type, schema, data, headers, n)
ORDER BY u.n RETURNING sequence, event_id`

func (p *database) InsertEvents(ctx context.Context, tx bun.IDB, rows []*dialect.NewEvent) error {
	n := len(rows)
	ids := make([]byte, 0, 33*n)
	streams, categories, types := make([]string, n), make([]string, n), make([]string, n)
	versions, slots, schemas := make([]int64, n), make([]int64, n), make([]int64, n)
	data, headers := make([]string, n), make([]string, n)
	for i, row := range rows {
		if i > 0 {
			ids = append(ids, ',')
		}
		ids = hex.AppendEncode(ids, row.ID[:])
		streams[i], categories[i], types[i] = row.Stream, row.Category, row.Type
		versions[i], slots[i], schemas[i] = row.Version, int64(row.Slot), int64(row.Schema)
		data[i], headers[i] = row.Data, row.Headers
	}
	var inserted []dialect.InsertedEvent
	err := p.Query(ctx, tx, insertEventsSQL, bun.Safe("'{"+string(ids)+"}'"), pgdialect.Array(streams), pgdialect.Array(versions),
		pgdialect.Array(categories), pgdialect.Array(slots), pgdialect.Array(types), pgdialect.Array(schemas),
		pgdialect.Array(data), pgdialect.Array(headers)).Scan(ctx, &inserted)
	if err != nil {
		return err
	}
	return dialect.NumberInserted(rows, inserted)
}

// numberPreambleSQL keeps the planner, which may have no statistics yet of a fast-growing table,
// from sorting all unnumbered events to find the first few, and from comparing each event with each
// place.
const numberPreambleSQL = preambleSQL + `, set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
	set_config('enable_nestloop', 'off', true)`

// numberLockSQL makes numbers commit in their order: a transaction that sees one sees all before
// it. It is a statement of its own, so that the snapshot of numberSQL is from after the lock and
// contains the previous numbers.
const numberLockSQL = `SELECT position FROM {head} WHERE id = 1 FOR UPDATE SKIP LOCKED`

// numberSQL takes the lowest sequence numbers of all committed events without a number, never those
// above some bound: the predecessors of a visible event are visible and have lower numbers.
const numberSQL = `
WITH todo AS MATERIALIZED (SELECT sequence FROM {events} WHERE position IS NULL ORDER BY sequence LIMIT ?),
places AS MATERIALIZED (SELECT sequence, row_number() OVER (ORDER BY sequence) AS n FROM todo),
done AS (
  UPDATE {events} e SET position = ? + p.n FROM places p WHERE e.sequence = p.sequence AND e.position IS NULL
    AND e.sequence >= (SELECT min(sequence) FROM todo) AND e.sequence <= (SELECT max(sequence) FROM todo) RETURNING 1)
UPDATE {head} SET position = position + (SELECT count(*) FROM done) WHERE id = 1
RETURNING (SELECT count(*) FROM todo) AS found, (SELECT count(*) FROM done) AS numbered`

func (p *database) AssignPositions(ctx context.Context, db *bun.DB, limit int) (numbered int, err error) {
	err = txn.RunOwn(ctx, db, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewRaw(numberPreambleSQL).Exec(ctx); err != nil {
			return fmt.Errorf("preamble: %w", err)
		}
		var head []int64
		if err := p.Query(ctx, tx, numberLockSQL).Scan(ctx, &head); err != nil || len(head) == 0 {
			return err
		}
		var did struct{ Found, Numbered int }
		if err := p.Query(ctx, tx, numberSQL, limit, head[0]).Scan(ctx, &did); err != nil {
			return err
		}
		if did.Found != did.Numbered { // impossible while every process takes the lock
			return fmt.Errorf("%d of %d events were numbered meanwhile", did.Found-did.Numbered, did.Found)
		}
		numbered = did.Numbered
		return nil
	})
	return numbered, err
}

// sessionSQL are columns with the Session. They also set how long the server keeps it idle in this
// transaction.
const sessionSQL = `, pg_backend_pid() AS pid, (extract(epoch FROM now()) * 1000000)::bigint AS begun,
  current_setting('search_path') AS path, current_setting('role') AS role, set_config('idle_in_transaction_session_timeout', '{idle}ms', true) AS idle`

func (p *database) AdvisoryLock(ctx context.Context, tx bun.IDB, name string, exclusive bool) error {
	lock := `SELECT pg_advisory_xact_lock_shared(?)`
	if exclusive {
		lock = `SELECT pg_advisory_xact_lock(?)`
	}
	h := fnv.New64a()
	h.Write([]byte(p.Expand("asyncmonolith {projections} ") + name))
	_, err := tx.NewRaw(lock, int64(h.Sum64())).Exec(ctx)
	return err
}
