package sqlite

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

const extendSQL = `UPDATE {claims} SET leased_until = {now} + ? WHERE owner = ? RETURNING id`

func (s *database) Extend(ctx context.Context, db bun.IDB, owner string, lease time.Duration) (held []int64, err error) {
	err = s.Query(ctx, db, extendSQL, lease.Microseconds(), owner).Scan(ctx, &held)
	return held, err
}

const disclaimSQL = `DELETE FROM {claims} WHERE id IN (SELECT value FROM json_each(?)) AND owner = ?`

func (s *database) Disclaim(ctx context.Context, db bun.IDB, owner string, claims []int64) error {
	_, err := s.Query(ctx, db, disclaimSQL, dialect.AsJSON(claims), owner).Exec(ctx)
	return err
}

const deadSQL = `SELECT id FROM {claims} WHERE leased_until < {now} ORDER BY id LIMIT 20`

// hitSQL reads the messages of dead claims as a table.
const hitSQL = `(SELECT m.id, m.crashes, c.solo FROM {claims} c, json_each(c.message_ids) j JOIN {messages} m ON m.id = j.value
	WHERE c.id IN (SELECT value FROM json_each(?)))`

const dyingSQL = `SELECT h.id FROM ` + hitSQL + ` h WHERE h.solo AND h.crashes + 1 >= ?`

// burySQL is immutable.
var burySQL = `
INSERT INTO {poisoned} (` + dialect.PoisonedColumns + `)
SELECT ` + dialect.PoisonedID("m.id") + `, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id, m.created_at,
  m.available_after, m.attempts, m.crashes + 1, m.errors, {now}, ? FROM {messages} m WHERE m.id IN (SELECT value FROM json_each(?))`

const bumpSQL = `UPDATE {messages} AS m SET crashes = CASE WHEN h.solo THEN h.crashes + 1 ELSE MIN(h.crashes + 1, ? - 1) END
FROM ` + hitSQL + ` h WHERE m.id = h.id`

const forgetSQL = `DELETE FROM {claims} WHERE id IN (SELECT value FROM json_each(?))`

func (s *database) Recover(ctx context.Context, db bun.IDB, maxCrashes int) (found dialect.Recovered, err error) {
	err = s.inTx(ctx, db, func(tx bun.IDB) error {
		found = dialect.Recovered{}
		var dead, dying []int64
		if err := s.Query(ctx, tx, deadSQL).Scan(ctx, &dead); err != nil || len(dead) == 0 {
			return err
		}
		claims := dialect.AsJSON(dead)
		if err := s.Query(ctx, tx, dyingSQL, claims, maxCrashes).Scan(ctx, &dying); err != nil {
			return err
		}
		if _, err := s.Query(ctx, tx, burySQL, dialect.CrashReason(maxCrashes), dialect.AsJSON(dying)).Exec(ctx); err != nil {
			return err
		}
		if _, err := s.Query(ctx, tx, deleteSQL, dialect.AsJSON(dying)).Exec(ctx); err != nil {
			return err
		}
		bumped, err := s.Query(ctx, tx, bumpSQL, maxCrashes, claims).Exec(ctx)
		if err != nil {
			return err
		}
		n, err := bumped.RowsAffected()
		if err != nil {
			return err
		}
		found = dialect.Recovered{Claims: len(dead), Crashed: int(n) + len(dying), Poisoned: len(dying)}
		_, err = s.Query(ctx, tx, forgetSQL, claims).Exec(ctx)
		return err
	})
	return found, err
}
