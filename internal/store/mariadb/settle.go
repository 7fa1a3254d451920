package mariadb

import (
	"context"
	"errors"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// A transaction may lock a message, or its insert id, for any time. A statement goes on waiting
// after its client has hung up, and keeps all its transaction's locks. So statements that wait
// while claims are locked give up before their client does; a renewal waits longer. MySQL waits as
// long as innodb_lock_wait_timeout.
const (
	brieflySQL = `/*M! SET STATEMENT innodb_lock_wait_timeout=1 FOR */ `
	longerSQL  = `/*M! SET STATEMENT innodb_lock_wait_timeout=3 FOR */ `
)

const (
	liveSQL   = brieflySQL + `SELECT c.id, c.solo, c.message_ids«, c.lanes» FROM {ids} {claims} c FORCE INDEX (PRIMARY) ON c.id = j.id WHERE c.owner = ? FOR UPDATE`
	forgetSQL = brieflySQL + `DELETE c FROM {ids} {claims} c FORCE INDEX (PRIMARY) ON c.id = j.id`
	deleteSQL = `DELETE m FROM {ids} {messages} m FORCE INDEX (PRIMARY) ON m.id = j.id`
)

// Live does not report a locked claim as a lock timeout, which would blame a message.
func (m *database) Live(ctx context.Context, tx bun.IDB, owner string, claims []int64, lanes bool) (rows []dialect.Leased, err error) {
	err = m.Query(ctx, tx, dialect.IfLanes(liveSQL, lanes), dialect.Ordered(claims), owner).Scan(ctx, &rows)
	if dberr.IsLockTimeout(err) {
		err = errors.New(err.Error())
	}
	return rows, err
}

// resSQL reads the results as a table.
const resSQL = `JSON_TABLE(?, '$[*]' COLUMNS (mid BIGINT PATH '$.m', outcome VARCHAR(16) CHARACTER SET utf8mb4 PATH '$.o', delay BIGINT PATH '$.d',
	errors LONGTEXT CHARACTER SET utf8mb4 PATH '$.e', reason LONGTEXT CHARACTER SET utf8mb4 PATH '$.r', fingerprint VARCHAR(32) CHARACTER SET utf8mb4 PATH '$.f'«, parks BOOLEAN PATH '$.p'»)) r STRAIGHT_JOIN {messages} m FORCE INDEX (PRIMARY) ON m.id = r.mid`

// keySQL is the row of a message m with a key. It is locked with the message, and so need not wait
// once that is locked.
const keySQL = ` LEFT JOIN {lanes} k FORCE INDEX (PRIMARY) ON k.id = m.id`

// statements returns the statements for messages with keys, or for others.
func statements(of func(string) string) dialect.ListStatements {
	return dialect.ListStatements{
		Recover: recoverStatements(),
		Forget:  forgetSQL,
		Delete:  brieflySQL + deleteSQL,
		Rest:    of(`UPDATE {claims} SET message_ids = ?«, lanes = ?», leased_until = {now} + ? WHERE id = ?`),
		Poison: of(brieflySQL + `
INSERT INTO {poisoned} (` + dialect.PoisonedColumns + `, steps, fingerprint«, order_key, lane, ` + "`rank`" + `, parks»)
SELECT ` + dialect.PoisonedID("m.id") + `, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id, m.created_at,
  m.available_after, m.attempts + 1, m.crashes, CASE WHEN r.errors = '' THEN m.errors ELSE r.errors END, {now}, r.reason, m.group_key, m.steps, r.fingerprint«,
  k.order_key, k.lane, k.rank, k.id IS NOT NULL AND COALESCE(r.parks, FALSE)»
FROM ` + resSQL + `«` + keySQL + `» FOR UPDATE`),
		Again: of(brieflySQL + `
UPDATE ` + resSQL + ` SET m.attempts = m.attempts + CASE r.outcome WHEN 'failed' THEN 1 ELSE 0 END, m.crashes = 0,
  m.errors = CASE WHEN r.errors = '' THEN m.errors ELSE r.errors END, m.available_after = {now} + r.delay`),
	}
}

// InTx runs fn in the caller's transaction or a READ COMMITTED one, repeated after a conflict.
func (m *database) InTx(ctx context.Context, db bun.IDB, fn func(tx bun.IDB) error) error {
	return txn.InTx(ctx, db, func(tx bun.Tx) error { return fn(tx) })
}

// A produce that has met an insert id keeps it locked and leaves the message free, although the two
// are removed together.
const (
	messagesSQL  = `SELECT t.id FROM {ids} {messages} t FORCE INDEX (PRIMARY) ON t.id = j.id`
	insertIDsSQL = `SELECT t.id FROM {ids} {keys} t FORCE INDEX ({prefix}pending_insert_ids_message) ON t.id = j.id`
)

// busy locks the rows of messages that are not locked, and returns the others.
func (m *database) busy(ctx context.Context, tx bun.IDB, rows string, messages []int64) ([]int64, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	var locked, there []int64
	if err := m.Query(ctx, tx, rows+` FOR UPDATE SKIP LOCKED`, dialect.Ordered(messages)).Scan(ctx, &locked); err != nil {
		return nil, err
	}
	if err := m.Query(ctx, tx, rows, dialect.Ordered(messages)).Scan(ctx, &there); err != nil {
		return nil, err
	}
	return dialect.Without(there, locked), nil
}

func (m *database) Unlocked(
	ctx context.Context, tx bun.IDB, live []dialect.Leased, results []dialect.Result,
) (free, busy []dialect.Result, err error) {
	held, _, _ := dialect.Subtract(live, results)
	touched := make(map[dialect.ResultKey]bool, len(held))
	var ids []int64
	for _, r := range held {
		if r.Outcome != dialect.Release {
			touched[r.Key()], ids = true, append(ids, r.Message)
		}
	}
	blocked, err := m.busy(ctx, tx, messagesSQL, ids)
	if err != nil {
		return nil, nil, err
	}
	byInsertID, err := m.busy(ctx, tx, insertIDsSQL, ids)
	if err != nil {
		return nil, nil, err
	}
	blocked = append(blocked, byInsertID...)
	locked := make(map[int64]bool, len(blocked))
	for _, id := range blocked {
		locked[id] = true
	}
	for _, r := range results {
		if touched[r.Key()] && locked[r.Message] {
			busy = append(busy, r)
		} else {
			free = append(free, r)
		}
	}
	return free, busy, nil
}
