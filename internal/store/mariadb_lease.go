package store

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

const (
	mariaOwned  = `SELECT id FROM {claims} WHERE owner = ? ORDER BY id`
	mariaExtend = mariaLonger + `UPDATE {ids} {claims} c FORCE INDEX (PRIMARY) ON c.id = j.id SET c.leased_until = {now} + ? WHERE c.owner = ?`
)

// extend asks for the owner's claims before, so as not to wait for those of others, and
// after: what is there still was renewed, or claimed meanwhile. A transaction would take
// twice as many round trips, each of which shortens what is left of the leases. How many
// rows an update has changed says nothing: a driver may be set to count otherwise. The
// update is sent for no claims, too: it shows that the server takes writes.
func (m *mariadb) extend(ctx context.Context, db bun.IDB, owner string, lease time.Duration) (held []int64, err error) {
	var owned []int64
	if err := m.raw(ctx, db, mariaOwned, owner).Scan(ctx, &owned); err != nil {
		return nil, err
	}
	if _, err := m.raw(ctx, db, mariaExtend, ordered(owned), lease.Microseconds(), owner).Exec(ctx); err != nil {
		return nil, err
	}
	err = m.raw(ctx, db, mariaOwned, owner).Scan(ctx, &held)
	return held, err
}

const mariaDisclaim = mariaForget + ` WHERE c.owner = ?`

func (m *mariadb) disclaim(ctx context.Context, db bun.IDB, owner string, claims []int64) error {
	return txn.InTx(ctx, db, func(tx bun.Tx) error {
		_, err := m.raw(ctx, tx, mariaDisclaim, ordered(claims), owner).Exec(ctx)
		return err
	})
}

const (
	mariaDead = `SELECT id, solo, message_ids FROM {claims} FORCE INDEX (PRIMARY) WHERE leased_until < {now} ORDER BY id LIMIT 20 FOR UPDATE SKIP LOCKED`
	mariaHit  = `SELECT m.id, m.crashes FROM {ids} {messages} m FORCE INDEX (PRIMARY) ON m.id = j.id FOR UPDATE SKIP LOCKED`

	mariaBump = `UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]', crashes BIGINT PATH '$[1]')) j STRAIGHT_JOIN {messages} m FORCE INDEX (PRIMARY) ON m.id = j.id
SET m.crashes = j.crashes`
)

// mariaDying is immutable.
var mariaDying = `
INSERT INTO {poisoned} (` + poisonedColumns + `)
SELECT ` + poisonedID("m.id") + `, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id, m.created_at,
  m.available_after, m.attempts, m.crashes + 1, m.errors, {now}, ? FROM {ids} {messages} m FORCE INDEX (PRIMARY) ON m.id = j.id FOR UPDATE`

// recover leaves messages alone that somebody has locked: a transactional
// consumer that outlived its lease is still at work on them, not crashed.
func (m *mariadb) recover(ctx context.Context, db bun.IDB, maxCrashes int) (found Recovered, err error) {
	err = txn.InTx(ctx, db, func(tx bun.Tx) error {
		found = Recovered{}
		var dead []leased
		if err := m.raw(ctx, tx, mariaDead).Scan(ctx, &dead); err != nil || len(dead) == 0 {
			return err
		}
		solo := make(map[int64]bool)
		var claims, ids []int64
		for _, c := range dead {
			claims, ids = append(claims, c.ID), append(ids, c.MessageIDs...)
			for _, id := range c.MessageIDs {
				solo[id] = c.Solo
			}
		}
		var hit []struct{ ID, Crashes int64 }
		if err := m.raw(ctx, tx, mariaHit, ordered(ids)).Scan(ctx, &hit); err != nil {
			return err
		}
		var dying []int64
		var bumped [][2]int64
		for _, h := range hit {
			switch {
			case solo[h.ID] && h.Crashes+1 >= int64(maxCrashes):
				dying = append(dying, h.ID)
			case solo[h.ID]:
				bumped = append(bumped, [2]int64{h.ID, h.Crashes + 1})
			default:
				bumped = append(bumped, [2]int64{h.ID, min(h.Crashes+1, int64(maxCrashes)-1)})
			}
		}
		if err := m.count(ctx, tx, dying, bumped, maxCrashes); err != nil {
			return err
		}
		found = Recovered{Claims: len(dead), Crashed: len(hit), Poisoned: len(dying)}
		return m.run(ctx, tx, mariaForget, claims)
	})
	if err != nil {
		return Recovered{}, err
	}
	return found, nil
}

// count writes the crashes of messages that are locked.
func (m *mariadb) count(ctx context.Context, tx bun.Tx, dying []int64, bumped [][2]int64, maxCrashes int) error {
	if len(dying) > 0 {
		if _, err := m.raw(ctx, tx, mariaDying, CrashReason(maxCrashes), ordered(dying)).Exec(ctx); err != nil {
			return fmt.Errorf("poison: %w", err)
		}
		if err := m.run(ctx, tx, mariaBriefly+mariaDelete, dying); err != nil {
			return fmt.Errorf("delete: %w", err)
		}
	}
	if len(bumped) == 0 {
		return nil
	}
	_, err := m.raw(ctx, tx, mariaBump, asJSON(bumped)).Exec(ctx)
	return err
}
