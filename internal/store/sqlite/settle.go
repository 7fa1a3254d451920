package sqlite

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// resSQL reads the results as a table.
const resSQL = `(SELECT value ->> 'm' AS mid, value ->> 'o' AS outcome, value ->> 'd' AS delay,
	value ->> 'e' AS errors, value ->> 'r' AS reason, value ->> 'f' AS fingerprint«, value ->> 'p' AS parks» FROM json_each(?))`

// listedSQL selects the rows of a list.
const listedSQL = ` WHERE id IN (SELECT value FROM json_each(?))`

// statements returns the statements for messages with keys, or for others.
func statements(of func(string) string) dialect.ListStatements {
	return dialect.ListStatements{
		Recover: recoverStatements(),
		Forget:  `DELETE FROM {claims}` + listedSQL,
		Delete:  `DELETE FROM {messages}` + listedSQL,
		Rest:    of(`UPDATE {claims} SET message_ids = ?«, lanes = ?», leased_until = {now} + ? WHERE id = ?`),
		Poison: of(`
INSERT INTO {poisoned} (` + dialect.PoisonedColumns + `, steps, fingerprint«, order_key, lane, rank, parks»)
SELECT ` + dialect.PoisonedID("m.id") + `, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id, m.created_at,
  m.available_after, m.attempts + 1, m.crashes, COALESCE(NULLIF(r.errors, ''), m.errors), {now}, r.reason, m.group_key, m.steps, r.fingerprint«,
  m.order_key, m.lane, m.rank, m.lane IS NOT NULL AND r.parks»
FROM ` + resSQL + ` r JOIN {messages} m ON m.id = r.mid`),
		Again: of(`
UPDATE {messages} AS m SET attempts = m.attempts + (r.outcome = 'failed'), crashes = 0,
  errors = COALESCE(NULLIF(r.errors, ''), m.errors), available_after = {now} + r.delay«, rank = ` + dialect.Moved("m.rank", "{now} + r.delay", dialect.SameMicros) + `»
FROM ` + resSQL + ` r WHERE m.id = r.mid`),
	}
}

// claimsSQL reads claims of an owner.
const claimsSQL = `SELECT id, solo, message_ids«, lanes» FROM {claims} WHERE id IN (SELECT value FROM json_each(?)) AND owner = ?`

// Live locks nothing: the transaction has the write lock.
func (s *database) Live(ctx context.Context, tx bun.IDB, owner string, claims []int64, lanes bool) (live []dialect.Leased, err error) {
	err = s.Query(ctx, tx, dialect.IfLanes(claimsSQL, lanes), dialect.AsJSON(claims), owner).Scan(ctx, &live)
	return live, err
}

// Unlocked returns all results as free.
func (s *database) Unlocked(
	_ context.Context, _ bun.IDB, _ []dialect.Leased, results []dialect.Result,
) (free, busy []dialect.Result, err error) {
	return results, nil, nil
}
