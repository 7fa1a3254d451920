package dialect

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
)

// Returning is code shared by dialects with RETURNING.
type Returning struct {
	Names
	Dialect interface {
		InsertKeyed(ctx context.Context, db bun.IDB, rows []NewMessage) ([]uuid.UUID, error)
		// Listed selects names as rows with a consumer, given them as its argument.
		Listed(names []string) (statement string, arg any)
	}
}

// Priorities returns nil: messages have priorities.
func (r *Returning) Priorities() error { return nil }

// AnyOrder returns nil: messages with keys may run in any order.
func (r *Returning) AnyOrder() error { return nil }

// Events returns nil: there is an event log.
func (r *Returning) Events() error { return nil }

// Usable implements [Dialect].
func (r *Returning) Usable(ctx context.Context, tx bun.IDB) bool {
	_, err := tx.NewRaw(`SELECT 1`).Exec(ctx)
	return err == nil
}

// Savepoint is the name of the savepoint to which a failed message of a group is rolled back.
const Savepoint = `asyncmonolith`

// Savepoint implements [Dialect]. Outside of a transaction PostgreSQL refuses it. On SQLite it begins
// one, which is not committed: see Intact.
func (r *Returning) Savepoint(ctx context.Context, tx bun.IDB) error {
	_, err := tx.NewRaw(`SAVEPOINT ` + Savepoint).Exec(ctx)
	return err
}

// Remove implements [Dialect].
func (r *Returning) Remove(ctx context.Context, tx bun.IDB, session Session, ids []int64) (int, error) {
	before, args := r.AsBegun(session)
	return r.Changed(ctx, tx, before+`DELETE FROM {messages} WHERE id IN (?)`, append(args, bun.List(ids))...)
}

// ChangeLocked implements [Dialect].
func (r *Returning) ChangeLocked(ctx context.Context, tx bun.Tx, ids []int64, due string) (rows []ChangedRow, err error) {
	statement := `DELETE FROM {messages}`
	if due != "" {
		statement = `UPDATE {messages} SET available_after = ` + due + `, rank = ` + Moved("rank", due, r.Micros)
	}
	statement += ` WHERE id IN (?) AND id NOT IN (SELECT mid FROM ({holds}) h) RETURNING id, payload_type`
	err = r.Query(ctx, tx, statement, bun.List(ids)).Scan(ctx, &rows)
	return rows, err
}

// RequeueAs is requeue in the order of a collation.
func (r *Returning) RequeueAs(
	ctx context.Context, tx bun.Tx, ids []int64, how Requeuing, collation string,
) (written []Requeued, err error) {
	consumer, payload, args := how.Columns()
	err = r.Query(ctx, tx, `INSERT INTO {messages}
		(message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, steps, order_key, lane, rank, group_key)
		SELECT p.message_id, p.consumer, `+payload+`, `+RequeuedHeaders+`, p.insert_id, p.created_at, {now}, p.steps, p.order_key, p.lane, p.rank, p.group_key
		FROM (SELECT `+consumer+` AS consumer, p.message_id, p.payload_type, p.payload, p.headers, p.insert_id, p.created_at, p.steps, p.order_key, p.lane, p.rank, p.group_key FROM {poisoned} p WHERE p.id IN (?)) p
		WHERE TRUE ORDER BY p.insert_id`+collation+`, p.consumer`+collation+`
		ON `+OnPending+` RETURNING id, message_id, insert_id, consumer_type`, append(args, bun.List(ids))...).Scan(ctx, &written)
	return written, err
}

// FreeKeys inserts messages with the keys and deletes them again; no other transaction sees them.
func (r *Returning) FreeKeys(ctx context.Context, tx bun.Tx, keys []PendingKey) (free map[PendingKey]bool, err error) {
	free = make(map[PendingKey]bool, len(keys))
	for part := range slices.Chunk(keys, insertRows) {
		rows, byID := make([]NewMessage, len(part)), make(map[uuid.UUID]PendingKey, len(part))
		args := make([]any, 0, 2*len(part))
		for i, k := range part {
			var id uuid.UUID // it has no meaning elsewhere
			binary.BigEndian.PutUint64(id[8:], uint64(i+1))
			rows[i], byID[id] = NewMessage{MessageID: id, ConsumerType: k.ConsumerType, InsertID: k.InsertID}, k
		}
		ids, err := r.Dialect.InsertKeyed(ctx, tx, rows)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			k := byID[id]
			args, free[k] = append(args, k.InsertID, k.ConsumerType), true
		}
		if len(ids) == 0 {
			continue
		}
		err = r.Exec(ctx, tx, `DELETE FROM {messages} WHERE insert_id IS NOT NULL AND (insert_id, consumer_type) IN (VALUES `+Rows("(?, ?)", len(ids))+`)`, args...)
		if err != nil {
			return nil, err
		}
	}
	return free, nil
}

// InsertID implements [Dialect].
func (r *Returning) InsertID(ctx context.Context, db bun.IDB, statement string, args ...any) (id int64, err error) {
	err = r.Query(ctx, db, statement+" RETURNING id", args...).Scan(ctx, &id)
	return id, err
}

// SaveSchedule implements [Dialect].
func (r *Returning) SaveSchedule(ctx context.Context, db bun.IDB, columns []any) (id int64, err error) {
	return r.InsertID(ctx, db, InsertSchedule+` ON CONFLICT (name) DO UPDATE SET
  tag = EXCLUDED.tag, payload_type = EXCLUDED.payload_type, payload = EXCLUDED.payload, headers = EXCLUDED.headers,
  available_after = CASE WHEN {schedules}.cron_expression = EXCLUDED.cron_expression AND {schedules}.cron_timezone = EXCLUDED.cron_timezone
    THEN {schedules}.available_after ELSE EXCLUDED.available_after END,
  cron_expression = EXCLUDED.cron_expression, cron_timezone = EXCLUDED.cron_timezone, last_error = NULL, retry_at = NULL`, columns...)
}

// storedConsumers finds the distinct consumer types by skipping through the indexes, with one
// lookup each.
const storedConsumers = `
WITH RECURSIVE
clean(name) AS (SELECT (SELECT MIN(consumer_type) FROM {messages} WHERE keyed = FALSE AND crashes = 0) UNION ALL
  SELECT (SELECT MIN(m.consumer_type) FROM {messages} m WHERE m.keyed = FALSE AND m.crashes = 0 AND m.consumer_type > t.name) FROM clean t WHERE t.name IS NOT NULL),
crashed(name) AS (SELECT (SELECT MIN(consumer_type) FROM {messages} WHERE keyed = FALSE AND crashes > 0) UNION ALL
  SELECT (SELECT MIN(m.consumer_type) FROM {messages} m WHERE m.keyed = FALSE AND m.crashes > 0 AND m.consumer_type > t.name) FROM crashed t WHERE t.name IS NOT NULL),
keyed(name) AS (SELECT (SELECT MIN(consumer_type) FROM {messages} WHERE keyed = TRUE) UNION ALL
  SELECT (SELECT MIN(m.consumer_type) FROM {messages} m WHERE m.keyed = TRUE AND m.consumer_type > t.name) FROM keyed t WHERE t.name IS NOT NULL),
poisoned(name) AS (SELECT (SELECT MIN(consumer_type) FROM {poisoned}) UNION ALL
  SELECT (SELECT MIN(p.consumer_type) FROM {poisoned} p WHERE p.consumer_type > t.name) FROM poisoned t WHERE t.name IS NOT NULL)
SELECT name FROM (SELECT name FROM clean UNION SELECT name FROM crashed UNION SELECT name FROM keyed UNION SELECT name FROM poisoned) n WHERE name IS NOT NULL`

// StoredConsumers implements [Dialect].
func (r *Returning) StoredConsumers(ctx context.Context, db bun.IDB) (names []string, err error) {
	err = r.Query(ctx, db, storedConsumers).Scan(ctx, &names)
	return names, err
}

// groupsStatement walks from one group of poisoned messages to the next, and to those without a
// fingerprint, by skipping through the index. Behind the last group it returns one without a
// consumer.
const groupsStatement = `
WITH RECURSIVE walk(consumer, print, n) AS (SELECT %s, '', 0 UNION ALL
  SELECT CASE WHEN ` + nextPrint + ` IS NULL THEN %s ELSE w.consumer END, COALESCE(` + nextPrint + `, ''), w.n + 1
  FROM walk w WHERE w.consumer IS NOT NULL AND w.n < ?)
SELECT w.consumer AS consumer_type, w.print AS fingerprint FROM walk w WHERE w.consumer IS NULL
  OR w.print <> '' OR EXISTS (SELECT 1 FROM {poisoned} p WHERE p.consumer_type = w.consumer AND p.fingerprint IS NULL)`

const nextPrint = `(SELECT MIN(p.fingerprint) FROM {poisoned} p WHERE p.consumer_type = w.consumer AND p.fingerprint > w.print)`

// PoisonGroups implements [Dialect].
func (r *Returning) PoisonGroups(ctx context.Context, db bun.IDB, consumer string, most int) (groups []GroupKey, whole bool, err error) {
	first, next, args := `(SELECT MIN(p.consumer_type) FROM {poisoned} p)`, `(SELECT MIN(p.consumer_type) FROM {poisoned} p WHERE p.consumer_type > w.consumer)`, []any{
		most,
	}
	if consumer != "" {
		first, next, args = `?`, `NULL`, []any{consumer, most}
	}
	err = r.Query(ctx, db, fmt.Sprintf(groupsStatement, first, next), args...).Scan(ctx, &groups)
	if n := len(groups); n > 0 && groups[n-1].ConsumerType == "" {
		groups, whole = groups[:n-1], true
	}
	return groups, whole, err
}

// unregisteredStatement walks first the consumers and then the kinds of messages by skipping
// through the index, with one lookup each. It looks only between the wanted kinds, so that it does
// not meet dead entries that a long transaction keeps. {wanted} is the list of wanted kinds.
const unregisteredStatement = `
WITH RECURSIVE taken(consumer, payload) AS ({wanted}),
consumers(name, upto) AS (
  SELECT name, lead(name) OVER (ORDER BY name) FROM (SELECT '' AS name UNION SELECT consumer FROM taken) t
  UNION ALL
  SELECT CASE WHEN c.upto IS NULL THEN (SELECT MIN(m.consumer_type) FROM {messages} m WHERE m.keyed = FALSE AND m.crashes = 0 AND m.consumer_type > c.name)
    ELSE (SELECT MIN(m.consumer_type) FROM {messages} m WHERE m.keyed = FALSE AND m.crashes = 0 AND m.consumer_type > c.name AND m.consumer_type < c.upto) END, c.upto
  FROM consumers c WHERE c.name IS NOT NULL),
kinds(consumer, payload, upto) AS (
  SELECT consumer, payload, lead(payload) OVER (PARTITION BY consumer ORDER BY payload)
  FROM (SELECT name AS consumer, '' AS payload FROM consumers WHERE name <> '' UNION SELECT * FROM taken) t
  UNION ALL
  SELECT k.consumer, CASE WHEN k.upto IS NULL THEN (SELECT MIN(m.payload_type) FROM {messages} m WHERE m.keyed = FALSE AND m.crashes = 0 AND m.consumer_type = k.consumer AND m.payload_type > k.payload)
    ELSE (SELECT MIN(m.payload_type) FROM {messages} m WHERE m.keyed = FALSE AND m.crashes = 0 AND m.consumer_type = k.consumer AND m.payload_type > k.payload AND m.payload_type < k.upto) END, k.upto
  FROM kinds k WHERE k.payload IS NOT NULL)
SELECT consumer AS consumer_type, payload AS payload_type FROM kinds WHERE payload <> '' AND (consumer, payload) NOT IN (SELECT * FROM taken) ORDER BY 1, 2 LIMIT 20`

// UnregisteredAmong returns the statement for kinds of messages that are not in the list, given as
// SQL.
func UnregisteredAmong(wanted string) string {
	return strings.Replace(unregisteredStatement, "{wanted}", wanted, 1)
}

// statsStatement counts per consumer with bounds, so that a large backlog costs no more than a
// small one. It skips from one payload type to the next, in the order of the index. It looks up
// what is leased once for all of them. {consumers} is their list as a table, {with keys} counts
// messages with keys.
const statsStatement = `
WITH RECURSIVE held AS ({held}),
leased AS MATERIALIZED (SELECT m.consumer_type AS consumer, count(*) AS n FROM held h JOIN {messages} m ON m.id = h.id GROUP BY m.consumer_type),
names AS MATERIALIZED ({consumers}),
kinds(consumer, payload) AS (
  SELECT n.consumer, (SELECT MIN(m.payload_type) FROM {messages} m WHERE m.keyed = FALSE AND m.crashes = 0 AND m.consumer_type = n.consumer) FROM names n
  UNION ALL
  SELECT k.consumer, (SELECT MIN(m.payload_type) FROM {messages} m WHERE m.keyed = FALSE AND m.crashes = 0 AND m.consumer_type = k.consumer AND m.payload_type > k.payload)
  FROM kinds k WHERE k.payload IS NOT NULL),
clean AS MATERIALIZED (SELECT k.consumer,
  (SELECT count(*) FROM (SELECT 1 FROM {messages} m WHERE m.consumer_type = k.consumer AND m.payload_type = k.payload AND m.keyed = FALSE AND m.crashes = 0
    AND m.available_after <= {now} AND m.id NOT IN (SELECT id FROM held) LIMIT ?) x) AS ready,
  (SELECT count(*) FROM (SELECT 1 FROM {messages} m WHERE m.consumer_type = k.consumer AND m.payload_type = k.payload AND m.keyed = FALSE AND m.crashes = 0
    AND m.available_after > {now} LIMIT ?) x) AS waits,
  (SELECT m.available_after FROM {messages} m WHERE m.consumer_type = k.consumer AND m.payload_type = k.payload AND m.keyed = FALSE AND m.crashes = 0
    AND m.available_after <= {now} AND m.id NOT IN (SELECT id FROM held) ORDER BY m.available_after LIMIT 1) AS oldest
  FROM kinds k WHERE k.payload IS NOT NULL),
crashed AS MATERIALIZED (SELECT n.consumer,
  (SELECT count(*) FROM (SELECT 1 FROM {messages} m WHERE m.consumer_type = n.consumer AND m.keyed = FALSE AND m.crashes > 0
    AND m.id NOT IN (SELECT id FROM held) LIMIT ?) x) AS ready,
  0 AS waits,
  (SELECT MIN(m.available_after) FROM {messages} m WHERE m.consumer_type = n.consumer AND m.keyed = FALSE AND m.crashes > 0 AND m.id NOT IN (SELECT id FROM held)) AS oldest
  FROM names n),
keyed AS MATERIALIZED ({with keys}),
poisoned AS MATERIALIZED (SELECT n.consumer,
  (SELECT count(*) FROM (SELECT 1 FROM {poisoned} p WHERE p.consumer_type = n.consumer LIMIT ?) x) AS n,
  (SELECT MIN(p.poisoned_at) FROM {poisoned} p WHERE p.consumer_type = n.consumer) AS oldest
  FROM names n)
SELECT a.consumer, CAST(SUM(a.ready) AS bigint) AS ready, CAST(SUM(a.waits) AS bigint) AS delayed, MIN(a.oldest) AS oldest_ready,
  COALESCE(MIN(l.n), 0) AS leased, MIN(p.n) AS poisoned, MIN(p.oldest) AS oldest_poisoned, {now} AS now
FROM (SELECT * FROM clean UNION ALL SELECT * FROM crashed UNION ALL SELECT * FROM keyed) a
JOIN poisoned p ON p.consumer = a.consumer LEFT JOIN leased l ON l.consumer = a.consumer
GROUP BY a.consumer ORDER BY a.consumer`

// Messages with keys have no index by due time. The first 20,000 of each consumer are counted, by
// rank, so that with more of them one of the two counts is at its bound. That takes one pass where
// a join may be LATERAL, otherwise three.
const (
	keyedTogether = `SELECT n.consumer, x.ready, x.waits, x.oldest FROM names n CROSS JOIN LATERAL (
  SELECT LEAST(count(*) FILTER (WHERE k.due AND k.free), ?) AS ready, LEAST(count(*) FILTER (WHERE NOT k.due), ?) AS waits, MIN(k.available_after) FILTER (WHERE k.due AND k.free) AS oldest
  FROM (SELECT m.available_after, m.available_after <= {now} AS due, m.id NOT IN (SELECT id FROM held) AS free FROM {messages} m
    WHERE m.consumer_type = n.consumer AND m.keyed = TRUE ORDER BY m.rank LIMIT 20000) k) x`
	keyedApart = `SELECT n.consumer,
  (SELECT count(*) FROM (SELECT 1 FROM (SELECT m.id, m.available_after FROM {messages} m WHERE m.consumer_type = n.consumer AND m.keyed = TRUE ORDER BY m.rank LIMIT 20000) x
    WHERE x.available_after <= {now} AND x.id NOT IN (SELECT id FROM held) LIMIT ?) y) AS ready,
  (SELECT count(*) FROM (SELECT 1 FROM (SELECT m.available_after FROM {messages} m WHERE m.consumer_type = n.consumer AND m.keyed = TRUE ORDER BY m.rank LIMIT 20000) x
    WHERE x.available_after > {now} LIMIT ?) y) AS waits,
  (SELECT MIN(x.available_after) FROM (SELECT m.id, m.available_after FROM {messages} m WHERE m.consumer_type = n.consumer AND m.keyed = TRUE ORDER BY m.rank LIMIT 20000) x
    WHERE x.available_after <= {now} AND x.id NOT IN (SELECT id FROM held)) AS oldest
  FROM names n`
)

// Stats implements [Dialect].
func (r *Returning) Stats(ctx context.Context, db bun.IDB, consumers []string) (rows []QueueStats, err error) {
	list, names := r.Dialect.Listed(consumers)
	keyed := keyedApart
	if r.Lateral {
		keyed = keyedTogether
	}
	statement := strings.NewReplacer("{consumers}", list, "{with keys}", keyed).Replace(statsStatement)
	err = r.Query(ctx, db, statement, names, MostCounted, MostCounted, MostCounted, MostCounted, MostCounted, MostCounted).Scan(ctx, &rows)
	return rows, err
}
