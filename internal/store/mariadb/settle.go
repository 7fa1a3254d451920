package mariadb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Whoever locks a message, or its insert id, may take any time, and a statement goes on
// waiting when its client has hung up, with all that its transaction has locked. So what
// waits while claims are locked gives up before its client does; a renewal outwaits it.
// MySQL waits as long as innodb_lock_wait_timeout says.
const (
	brieflySQL = `/*M! SET STATEMENT innodb_lock_wait_timeout=1 FOR */ `
	longerSQL  = `/*M! SET STATEMENT innodb_lock_wait_timeout=3 FOR */ `
)

const (
	liveSQL   = brieflySQL + `SELECT c.id, c.solo, c.message_ids FROM {ids} {claims} c FORCE INDEX (PRIMARY) ON c.id = j.id WHERE c.owner = ? FOR UPDATE`
	forgetSQL = brieflySQL + `DELETE c FROM {ids} {claims} c FORCE INDEX (PRIMARY) ON c.id = j.id`
	deleteSQL = `DELETE m FROM {ids} {messages} m FORCE INDEX (PRIMARY) ON m.id = j.id`
)

// live locks those of the claims that the owner still holds. A locked claim is not reported
// as a lock timeout, which would blame a message.
func (m *database) live(ctx context.Context, tx bun.IDB, owner string, claims []int64) (rows []dialect.Leased, err error) {
	err = m.Query(ctx, tx, liveSQL, ordered(claims), owner).Scan(ctx, &rows)
	if dberr.IsLockTimeout(err) {
		err = errors.New(err.Error())
	}
	return rows, err
}

// run executes one of the statements that take a list of ids, unless it is empty.
func (m *database) run(ctx context.Context, tx bun.IDB, statement string, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := m.Query(ctx, tx, statement, ordered(ids)).Exec(ctx)
	return err
}

func (m *database) Finish(ctx context.Context, db bun.IDB, owner string, claims []int64) (finished []dialect.Finished, err error) {
	err = txn.InTx(ctx, db, func(tx bun.Tx) error {
		finished = nil
		live, err := m.live(ctx, tx, owner, claims)
		if err != nil {
			return fmt.Errorf("claims: %w", err)
		}
		var ids, done []int64
		for _, c := range live {
			ids, done = append(ids, c.ID), append(done, c.MessageIDs...)
			finished = append(finished, dialect.Finished{Claim: c.ID, Messages: len(c.MessageIDs)})
		}
		if err := m.run(ctx, tx, brieflySQL+deleteSQL, done); err != nil {
			return fmt.Errorf("messages: %w", err)
		}
		return m.run(ctx, tx, forgetSQL, ids)
	})
	if err != nil {
		return nil, err
	}
	return finished, nil
}

// resSQL reads the results as a table.
const resSQL = `JSON_TABLE(?, '$[*]' COLUMNS (mid BIGINT PATH '$.m', outcome VARCHAR(16) CHARACTER SET utf8mb4 PATH '$.o', delay BIGINT PATH '$.d',
	errors LONGTEXT CHARACTER SET utf8mb4 PATH '$.e', reason LONGTEXT CHARACTER SET utf8mb4 PATH '$.r')) r STRAIGHT_JOIN {messages} m FORCE INDEX (PRIMARY) ON m.id = r.mid`

// poisonSQL is immutable.
var poisonSQL = brieflySQL + `
INSERT INTO {poisoned} (` + dialect.PoisonedColumns + `)
SELECT ` + dialect.PoisonedID("m.id") + `, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id, m.created_at,
  m.available_after, m.attempts + 1, m.crashes, CASE WHEN r.errors = '' THEN m.errors ELSE r.errors END, {now}, r.reason
FROM ` + resSQL + ` FOR UPDATE`

const againSQL = brieflySQL + `
UPDATE ` + resSQL + ` SET m.attempts = m.attempts + CASE r.outcome WHEN 'failed' THEN 1 ELSE 0 END, m.crashes = 0,
  m.errors = CASE WHEN r.errors = '' THEN m.errors ELSE r.errors END, m.available_after = {now} + r.delay`

const restSQL = `UPDATE {claims} SET message_ids = ?, leased_until = {now} + ? WHERE id = ?`

func (m *database) Settle(ctx context.Context, db bun.IDB, owner string, lease time.Duration, results []dialect.Result, freeOnly bool) (settled dialect.Settled, err error) {
	err = txn.InTx(ctx, db, func(tx bun.Tx) error {
		settled = dialect.Settled{}
		live, err := m.live(ctx, tx, owner, dialect.ClaimsOf(results))
		if err != nil {
			return fmt.Errorf("claims: %w", err)
		}
		rest := results
		if freeOnly {
			if rest, settled.Busy, err = m.unlocked(ctx, tx, live, results); err != nil {
				return fmt.Errorf("messages: %w", err)
			}
		}
		held, err := m.subtract(ctx, tx, live, lease, rest)
		if err != nil {
			return fmt.Errorf("claims: %w", err)
		}
		for _, c := range live {
			settled.Live = append(settled.Live, c.ID)
		}
		settled.Applied = len(held)
		return m.apply(ctx, tx, held)
	})
	if err != nil {
		return dialect.Settled{}, err
	}
	return settled, nil
}

// A produce that has met an insert id keeps a lock on that, and leaves the message free,
// with which it is to go.
const (
	messagesSQL  = `SELECT t.id FROM {ids} {messages} t FORCE INDEX (PRIMARY) ON t.id = j.id`
	insertIDsSQL = `SELECT t.id FROM {ids} {keys} t FORCE INDEX ({prefix}pending_insert_ids_message) ON t.id = j.id`
)

// busy locks the rows of messages that nobody else has locked, and returns the others.
func (m *database) busy(ctx context.Context, tx bun.Tx, rows string, messages []int64) ([]int64, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	var locked, there []int64
	if err := m.Query(ctx, tx, rows+` FOR UPDATE SKIP LOCKED`, ordered(messages)).Scan(ctx, &locked); err != nil {
		return nil, err
	}
	if err := m.Query(ctx, tx, rows, ordered(messages)).Scan(ctx, &there); err != nil {
		return nil, err
	}
	return dialect.Without(there, locked), nil
}

// unlocked parts off the results whose message somebody else has locked. The claims are
// locked. What is not found at all counts as free: there is nothing to wait for.
func (m *database) unlocked(ctx context.Context, tx bun.Tx, live []dialect.Leased, results []dialect.Result) (free, busy []dialect.Result, err error) {
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

// subtract takes what is settled out of the claims, which are locked, and returns
// the results that count.
func (m *database) subtract(ctx context.Context, tx bun.Tx, live []dialect.Leased, lease time.Duration, results []dialect.Result) ([]dialect.Result, error) {
	held, rests, ended := dialect.Subtract(live, results)
	for _, c := range rests {
		if _, err := m.Query(ctx, tx, restSQL, dialect.AsJSON(c.MessageIDs), lease.Microseconds(), c.ID).Exec(ctx); err != nil {
			return nil, err
		}
	}
	return held, m.run(ctx, tx, forgetSQL, ended)
}

// apply writes results that count.
func (m *database) apply(ctx context.Context, tx bun.Tx, held []dialect.Result) error {
	slices.SortFunc(held, func(a, b dialect.Result) int { return cmp.Compare(a.Message, b.Message) })
	gone, poisoned, again := dialect.ByOutcome(held)
	if err := m.write(ctx, tx, poisonSQL, poisoned); err != nil {
		return fmt.Errorf("poison: %w", err)
	}
	if err := m.run(ctx, tx, brieflySQL+deleteSQL, gone); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if err := m.write(ctx, tx, againSQL, again); err != nil {
		return fmt.Errorf("reschedule: %w", err)
	}
	return nil
}

// settleBytes bounds the texts of one statement: quoted as JSON and then as SQL they
// can become four times as long, and must fit into minPacket. What does not is never
// answered, so that it would be sent for ever.
const settleBytes = 2 << 20

// write executes one of the statements that take results, for a part of them at a time.
func (m *database) write(ctx context.Context, tx bun.Tx, statement string, results []dialect.Result) error {
	for _, part := range dialect.Cut(results, settleBytes, func(r dialect.Result) int { return len(r.Errors) + len(r.Reason) }) {
		if _, err := m.Query(ctx, tx, statement, dialect.ResultsJSON(part)).Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}
