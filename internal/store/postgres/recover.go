package postgres

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// recoverSQL leaves locked messages alone: a transactional consumer that outlived its lease still
// works on them and has not crashed. Of the ordered messages of a key it counts a crash only for
// the first: the others had not begun. It is immutable.
var recoverSQL = `
WITH dead AS MATERIALIZED (
  SELECT id, owner, message_ids, lanes, solo FROM {claims} WHERE leased_until < {now} ORDER BY id LIMIT 20 FOR UPDATE SKIP LOCKED),
ahead AS MATERIALIZED (SELECT id FROM {claims} WHERE {ahead} ORDER BY id FOR UPDATE SKIP LOCKED),
shortened AS (UPDATE {claims} c SET leased_until = {full lease} FROM ahead a WHERE c.id = a.id),
gone AS (DELETE FROM {claims} c USING dead d WHERE c.id = d.id),
ids AS MATERIALIZED (
  SELECT DISTINCT ON (d.id, COALESCE(CASE WHEN m.rank < ` + dialect.FirstInstant + ` THEN u.lane END, u.mid)) m.id AS mid, d.solo, d.owner
  FROM dead d CROSS JOIN LATERAL unnest(d.message_ids, d.lanes) WITH ORDINALITY u(mid, lane, n) JOIN {messages} m ON m.id = u.mid
  ORDER BY d.id, COALESCE(CASE WHEN m.rank < ` + dialect.FirstInstant + ` THEN u.lane END, u.mid), u.n),
hit AS MATERIALIZED (
  SELECT m.id, m.consumer_type, i.solo, i.owner, m.crashes
  FROM {messages} m JOIN ids i ON i.mid = m.id ORDER BY m.id FOR UPDATE OF m SKIP LOCKED),
died AS (INSERT INTO {crashes} (row_id, consumer_type, owner, solo, crashed_at) SELECT h.id, h.consumer_type, h.owner, h.solo, {now} FROM hit h),
dying AS (
  DELETE FROM {messages} m USING hit h WHERE m.id = h.id AND h.solo AND h.crashes + 1 >= ?
  RETURNING ` + dialect.MessageColumns + `, m.steps, m.order_key, m.lane, m.rank),
poi AS (
  INSERT INTO {poisoned} (` + dialect.PoisonedColumns + `, steps, fingerprint, order_key, lane, rank, parks)
  SELECT ` + dialect.PoisonedID("dying.id") + `, message_id, consumer_type, payload_type, payload, headers, insert_id, created_at,
    available_after, attempts, crashes + 1, errors, {now}, ?, group_key, steps, ` + dialect.Crash + `, order_key, lane, rank, lane IS NOT NULL AND (SELECT g.parks FROM {gates} g WHERE g.consumer_type = dying.consumer_type) FROM dying),
bump AS (
  UPDATE {messages} m SET crashes = CASE WHEN h.solo THEN h.crashes + 1 ELSE LEAST(h.crashes + 1, ? - 1) END
  FROM hit h WHERE m.id = h.id AND NOT (h.solo AND h.crashes + 1 >= ?))
SELECT (SELECT count(*) FROM dead) AS claims, (SELECT count(*) FROM hit) AS crashed, (SELECT count(*) FROM dying) AS poisoned`

func (p *database) Recover(ctx context.Context, db bun.IDB, maxCrashes int) (found dialect.Recovered, err error) {
	err = p.Query(ctx, db, recoverSQL, maxCrashes, dialect.CrashReason(maxCrashes), maxCrashes, maxCrashes).Scan(ctx, &found)
	return found, err
}
