package store

import (
	"context"
	"time"

	"github.com/uptrace/bun"
)

const sqliteExtend = `UPDATE {claims} SET leased_until = {now} + ? WHERE owner = ? RETURNING id`

func (s *sqlite) extend(ctx context.Context, db bun.IDB, owner string, lease time.Duration) (held []int64, err error) {
	err = s.raw(ctx, db, sqliteExtend, lease.Microseconds(), owner).Scan(ctx, &held)
	return held, err
}

const sqliteDisclaim = `DELETE FROM {claims} WHERE id IN (SELECT value FROM json_each(?)) AND owner = ?`

func (s *sqlite) disclaim(ctx context.Context, db bun.IDB, owner string, claims []int64) error {
	_, err := s.raw(ctx, db, sqliteDisclaim, asJSON(claims), owner).Exec(ctx)
	return err
}

const sqliteDead = `SELECT id FROM {claims} WHERE leased_until < {now} ORDER BY id LIMIT 20`

// sqliteHit reads the messages of dead claims as a table.
const sqliteHit = `(SELECT m.id, m.crashes, c.solo FROM {claims} c, json_each(c.message_ids) j JOIN {messages} m ON m.id = j.value
	WHERE c.id IN (SELECT value FROM json_each(?)))`

const sqliteDying = `SELECT h.id FROM ` + sqliteHit + ` h WHERE h.solo AND h.crashes + 1 >= ?`

// sqliteBury is immutable.
var sqliteBury = `
INSERT INTO {poisoned} (` + poisonedColumns + `)
SELECT ` + poisonedID("m.id") + `, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id, m.created_at,
  m.available_after, m.attempts, m.crashes + 1, m.errors, {now}, ? FROM {messages} m WHERE m.id IN (SELECT value FROM json_each(?))`

const sqliteBump = `UPDATE {messages} AS m SET crashes = CASE WHEN h.solo THEN h.crashes + 1 ELSE MIN(h.crashes + 1, ? - 1) END
FROM ` + sqliteHit + ` h WHERE m.id = h.id`

const sqliteForget = `DELETE FROM {claims} WHERE id IN (SELECT value FROM json_each(?))`

func (s *sqlite) recover(ctx context.Context, db bun.IDB, maxCrashes int) (found Recovered, err error) {
	err = s.inTx(ctx, db, func(tx bun.IDB) error {
		found = Recovered{}
		var dead, dying []int64
		if err := s.raw(ctx, tx, sqliteDead).Scan(ctx, &dead); err != nil || len(dead) == 0 {
			return err
		}
		claims := asJSON(dead)
		if err := s.raw(ctx, tx, sqliteDying, claims, maxCrashes).Scan(ctx, &dying); err != nil {
			return err
		}
		if _, err := s.raw(ctx, tx, sqliteBury, CrashReason(maxCrashes), asJSON(dying)).Exec(ctx); err != nil {
			return err
		}
		if _, err := s.raw(ctx, tx, sqliteDelete, asJSON(dying)).Exec(ctx); err != nil {
			return err
		}
		bumped, err := s.raw(ctx, tx, sqliteBump, maxCrashes, claims).Exec(ctx)
		if err != nil {
			return err
		}
		n, err := bumped.RowsAffected()
		if err != nil {
			return err
		}
		found = Recovered{Claims: len(dead), Crashed: int(n) + len(dying), Poisoned: len(dying)}
		_, err = s.raw(ctx, tx, sqliteForget, claims).Exec(ctx)
		return err
	})
	return found, err
}
