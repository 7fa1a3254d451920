package sqlite

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// resSQL reads the results as a table.
const resSQL = `(SELECT value ->> 'm' AS mid, value ->> 'o' AS outcome, value ->> 'd' AS delay,
	value ->> 'e' AS errors, value ->> 'r' AS reason FROM json_each(?))`

func listStatements() dialect.ListStatements {
	const those = ` WHERE id IN (SELECT value FROM json_each(?))`
	return dialect.ListStatements{
		Dead: `SELECT id, solo, message_ids FROM {claims} WHERE leased_until < {now} ORDER BY id LIMIT 20`,
		Hit:  `SELECT id, crashes FROM {messages}` + those,
		Bury: `
INSERT INTO {poisoned} (` + dialect.PoisonedColumns + `)
SELECT ` + dialect.PoisonedID("m.id") + `, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id, m.created_at,
  m.available_after, m.attempts, m.crashes + 1, m.errors, {now}, ? FROM {messages} m` + those,
		Bump:   `UPDATE {messages} AS m SET crashes = j.value ->> 1 FROM json_each(?) j WHERE m.id = j.value ->> 0`,
		Forget: `DELETE FROM {claims}` + those,
		Delete: `DELETE FROM {messages}` + those,
		Rest:   `UPDATE {claims} SET message_ids = ?, leased_until = {now} + ? WHERE id = ?`,
		Poison: `
INSERT INTO {poisoned} (` + dialect.PoisonedColumns + `)
SELECT ` + dialect.PoisonedID("m.id") + `, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id, m.created_at,
  m.available_after, m.attempts + 1, m.crashes, COALESCE(NULLIF(r.errors, ''), m.errors), {now}, r.reason
FROM ` + resSQL + ` r JOIN {messages} m ON m.id = r.mid`,
		Again: `
UPDATE {messages} AS m SET attempts = m.attempts + (r.outcome = 'failed'), crashes = 0,
  errors = COALESCE(NULLIF(r.errors, ''), m.errors), available_after = {now} + r.delay
FROM ` + resSQL + ` r WHERE m.id = r.mid`,
	}
}

// claimsSQL reads claims of an owner.
const claimsSQL = `SELECT id, solo, message_ids FROM {claims} WHERE id IN (SELECT value FROM json_each(?)) AND owner = ?`

// Live need not lock: the transaction has the write lock.
func (s *database) Live(ctx context.Context, tx bun.IDB, owner string, claims []int64) (live []dialect.Leased, err error) {
	err = s.Query(ctx, tx, claimsSQL, dialect.AsJSON(claims), owner).Scan(ctx, &live)
	return live, err
}

// Unlocked are all of them.
func (s *database) Unlocked(_ context.Context, _ bun.IDB, _ []dialect.Leased, results []dialect.Result) (free, busy []dialect.Result, err error) {
	return results, nil, nil
}
