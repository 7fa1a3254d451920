package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Whoever locks a message, or its insert id, may take any time, and a statement goes on
// waiting when its client has hung up, with all that its transaction has locked. So what
// waits while claims are locked gives up before its client does; a renewal outwaits it.
// MySQL waits as long as innodb_lock_wait_timeout says.
const (
	mariaBriefly = `/*M! SET STATEMENT innodb_lock_wait_timeout=1 FOR */ `
	mariaLonger  = `/*M! SET STATEMENT innodb_lock_wait_timeout=3 FOR */ `
)

const (
	mariaLive   = mariaBriefly + `SELECT c.id, c.solo, c.message_ids FROM {ids} {claims} c FORCE INDEX (PRIMARY) ON c.id = j.id WHERE c.owner = ? FOR UPDATE`
	mariaForget = mariaBriefly + `DELETE c FROM {ids} {claims} c FORCE INDEX (PRIMARY) ON c.id = j.id`
	mariaDelete = `DELETE m FROM {ids} {messages} m FORCE INDEX (PRIMARY) ON m.id = j.id`
)

// live locks those of the claims that the owner still holds. That a claim is locked it
// does not report as a lock timeout, which would blame a message.
func (m *mariadb) live(ctx context.Context, tx bun.IDB, owner string, claims []int64) (rows []leased, err error) {
	err = m.raw(ctx, tx, mariaLive, ordered(claims), owner).Scan(ctx, &rows)
	if dberr.IsLockTimeout(err) {
		err = errors.New(err.Error())
	}
	return rows, err
}

// run executes one of the statements that take a list of ids, unless it is empty.
func (m *mariadb) run(ctx context.Context, tx bun.IDB, statement string, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := m.raw(ctx, tx, statement, ordered(ids)).Exec(ctx)
	return err
}

func (m *mariadb) finish(ctx context.Context, db bun.IDB, owner string, claims []int64) (finished []Finished, err error) {
	err = txn.InTx(ctx, db, func(tx bun.Tx) error {
		finished = nil
		live, err := m.live(ctx, tx, owner, claims)
		if err != nil {
			return fmt.Errorf("claims: %w", err)
		}
		var ids, done []int64
		for _, c := range live {
			ids, done = append(ids, c.ID), append(done, c.MessageIDs...)
			finished = append(finished, Finished{Claim: c.ID, Messages: len(c.MessageIDs)})
		}
		if err := m.run(ctx, tx, mariaBriefly+mariaDelete, done); err != nil {
			return fmt.Errorf("messages: %w", err)
		}
		return m.run(ctx, tx, mariaForget, ids)
	})
	if err != nil {
		return nil, err
	}
	return finished, nil
}

// mariaRes reads the results as a table.
const mariaRes = `JSON_TABLE(?, '$[*]' COLUMNS (mid BIGINT PATH '$.m', outcome VARCHAR(16) CHARACTER SET utf8mb4 PATH '$.o', delay BIGINT PATH '$.d',
	errors LONGTEXT CHARACTER SET utf8mb4 PATH '$.e', reason LONGTEXT CHARACTER SET utf8mb4 PATH '$.r')) r STRAIGHT_JOIN {messages} m FORCE INDEX (PRIMARY) ON m.id = r.mid`

// mariaPoison is immutable.
var mariaPoison = mariaBriefly + `
INSERT INTO {poisoned} (` + poisonedColumns + `)
SELECT ` + poisonedID("m.id") + `, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id, m.created_at,
  m.available_after, m.attempts + 1, m.crashes, CASE WHEN r.errors = '' THEN m.errors ELSE r.errors END, {now}, r.reason
FROM ` + mariaRes + ` FOR UPDATE`

const mariaAgain = mariaBriefly + `
UPDATE ` + mariaRes + ` SET m.attempts = m.attempts + CASE r.outcome WHEN 'failed' THEN 1 ELSE 0 END, m.crashes = 0,
  m.errors = CASE WHEN r.errors = '' THEN m.errors ELSE r.errors END, m.available_after = {now} + r.delay`

const mariaRest = `UPDATE {claims} SET message_ids = ?, leased_until = {now} + ? WHERE id = ?`

func (m *mariadb) settle(ctx context.Context, db bun.IDB, owner string, lease time.Duration, results []Result, freeOnly bool) (settled Settled, err error) {
	err = txn.InTx(ctx, db, func(tx bun.Tx) error {
		settled = Settled{}
		live, err := m.live(ctx, tx, owner, resultColumns(results).claims)
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
		return Settled{}, err
	}
	return settled, nil
}

// A produce that has met an insert id keeps a lock on that, and leaves the message free,
// with which it is to go.
const (
	mariaMessages  = `SELECT t.id FROM {ids} {messages} t FORCE INDEX (PRIMARY) ON t.id = j.id`
	mariaInsertIDs = `SELECT t.id FROM {ids} {keys} t FORCE INDEX ({prefix}pending_insert_ids_message) ON t.id = j.id`
)

// busy locks the rows of messages that nobody else has locked, and returns the others.
func (m *mariadb) busy(ctx context.Context, tx bun.Tx, rows string, messages []int64) ([]int64, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	var locked, there []int64
	if err := m.raw(ctx, tx, rows+` FOR UPDATE SKIP LOCKED`, ordered(messages)).Scan(ctx, &locked); err != nil {
		return nil, err
	}
	if err := m.raw(ctx, tx, rows, ordered(messages)).Scan(ctx, &there); err != nil {
		return nil, err
	}
	return without(there, locked), nil
}

// unlocked parts off the results whose message somebody else has locked. The claims are
// locked. What is not found at all counts as free: there is nothing to wait for.
func (m *mariadb) unlocked(ctx context.Context, tx bun.Tx, live []leased, results []Result) (free, busy []Result, err error) {
	held, _, _ := subtract(live, results)
	touched := make(map[resultKey]bool, len(held))
	var ids []int64
	for _, r := range held {
		if r.Outcome != Release {
			touched[r.key()], ids = true, append(ids, r.Message)
		}
	}
	blocked, err := m.busy(ctx, tx, mariaMessages, ids)
	if err != nil {
		return nil, nil, err
	}
	byInsertID, err := m.busy(ctx, tx, mariaInsertIDs, ids)
	if err != nil {
		return nil, nil, err
	}
	blocked = append(blocked, byInsertID...)
	locked := make(map[int64]bool, len(blocked))
	for _, id := range blocked {
		locked[id] = true
	}
	for _, r := range results {
		if touched[r.key()] && locked[r.Message] {
			busy = append(busy, r)
		} else {
			free = append(free, r)
		}
	}
	return free, busy, nil
}

// subtract takes what is settled out of the claims, which are locked, and returns
// the results that count.
func (m *mariadb) subtract(ctx context.Context, tx bun.Tx, live []leased, lease time.Duration, results []Result) ([]Result, error) {
	held, rests, ended := subtract(live, results)
	for _, c := range rests {
		if _, err := m.raw(ctx, tx, mariaRest, asJSON(c.MessageIDs), lease.Microseconds(), c.ID).Exec(ctx); err != nil {
			return nil, err
		}
	}
	return held, m.run(ctx, tx, mariaForget, ended)
}

// apply writes results that count.
func (m *mariadb) apply(ctx context.Context, tx bun.Tx, held []Result) error {
	slices.SortFunc(held, func(a, b Result) int { return cmp.Compare(a.Message, b.Message) })
	gone, poisoned, again := byOutcome(held)
	if err := m.write(ctx, tx, mariaPoison, poisoned); err != nil {
		return fmt.Errorf("poison: %w", err)
	}
	if err := m.run(ctx, tx, mariaBriefly+mariaDelete, gone); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if err := m.write(ctx, tx, mariaAgain, again); err != nil {
		return fmt.Errorf("reschedule: %w", err)
	}
	return nil
}

// settleBytes bounds the texts of one statement: quoted as JSON and then as SQL they
// can become four times as long, and must fit into minPacket. What does not is never
// answered, so that it would be sent for ever.
const settleBytes = 2 << 20

// write executes one of the statements that take results, for a part of them at a time.
func (m *mariadb) write(ctx context.Context, tx bun.Tx, statement string, results []Result) error {
	for _, part := range cut(results, settleBytes, func(r Result) int { return len(r.Errors) + len(r.Reason) }) {
		if _, err := m.raw(ctx, tx, statement, resultsJSON(part)).Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}
