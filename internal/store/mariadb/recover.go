package mariadb

import "github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"

// recoverStatements returns the statements that recover the messages of lost processes.
func recoverStatements() dialect.RecoverStatements {
	return dialect.RecoverStatements{
		Dead:    `SELECT id, owner, solo, message_ids, lanes FROM {claims} FORCE INDEX (PRIMARY) WHERE leased_until < {now} ORDER BY id LIMIT 20 FOR UPDATE SKIP LOCKED`,
		Hit:     `SELECT m.id, m.crashes FROM {ids} {messages} m FORCE INDEX (PRIMARY) ON m.id = j.id FOR UPDATE SKIP LOCKED`,
		Present: `SELECT t.id, TRUE AS in_order FROM {ids} {messages} t FORCE INDEX (PRIMARY) ON t.id = j.id`,
		Bury: `
INSERT INTO {poisoned} (` + dialect.PoisonedColumns + `, steps, fingerprint, order_key, lane, ` + "`rank`" + `, parks)
SELECT ` + dialect.PoisonedID("m.id") + `, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id, m.created_at,
  m.available_after, m.attempts, m.crashes + 1, m.errors, {now}, ?, m.group_key, m.steps, ` + dialect.Crash + `, k.order_key, k.lane, k.rank,
  k.id IS NOT NULL AND (SELECT g.parks FROM {gates} g WHERE g.consumer_type = m.consumer_type)
FROM {ids} {messages} m FORCE INDEX (PRIMARY) ON m.id = j.id` + keySQL + ` FOR UPDATE`,
		Died: `INSERT INTO {crashes} (row_id, consumer_type, owner, solo, crashed_at)
SELECT m.id, m.consumer_type, j.owner, j.solo, {now}
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]', owner VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[1]', solo BOOLEAN PATH '$[2]')) j
STRAIGHT_JOIN {messages} m FORCE INDEX (PRIMARY) ON m.id = j.id FOR UPDATE`,
		Bump: `UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]', crashes BIGINT PATH '$[1]')) j STRAIGHT_JOIN {messages} m FORCE INDEX (PRIMARY) ON m.id = j.id
SET m.crashes = j.crashes`,
	}
}
