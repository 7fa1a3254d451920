package sqlite

import "github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"

// recoverStatements returns the statements that recover the messages of lost processes.
func recoverStatements() dialect.RecoverStatements {
	return dialect.RecoverStatements{
		Dead:    `SELECT id, owner, solo, message_ids, lanes FROM {claims} WHERE leased_until < {now} ORDER BY id LIMIT 20`,
		Hit:     `SELECT id, crashes FROM {messages}` + listedSQL,
		Present: `SELECT id, rank < ` + dialect.FirstInstant + ` AS in_order FROM {messages}` + listedSQL,
		Bury: `
INSERT INTO {poisoned} (` + dialect.PoisonedColumns + `, steps, fingerprint, order_key, lane, rank, parks)
SELECT ` + dialect.PoisonedID("m.id") + `, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id, m.created_at,
  m.available_after, m.attempts, m.crashes + 1, m.errors, {now}, ?, m.group_key, m.steps, ` + dialect.Crash + `, m.order_key, m.lane, m.rank,
  m.lane IS NOT NULL AND (SELECT g.parks FROM {gates} g WHERE g.consumer_type = m.consumer_type) FROM {messages} m` + listedSQL,
		Died: `INSERT INTO {crashes} (row_id, consumer_type, owner, solo, crashed_at)
SELECT m.id, m.consumer_type, j.value ->> 1, j.value ->> 2, {now} FROM json_each(?) j JOIN {messages} m ON m.id = j.value ->> 0`,
		Bump: `UPDATE {messages} AS m SET crashes = j.value ->> 1 FROM json_each(?) j WHERE m.id = j.value ->> 0`,
	}
}
