package mariadb

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

const (
	ownedSQL  = `SELECT id FROM {claims} WHERE owner = ? ORDER BY id`
	extendSQL = longerSQL + `UPDATE {ids} {claims} c FORCE INDEX (PRIMARY) ON c.id = j.id SET c.leased_until = {now} + ? WHERE c.owner = ?`
)

// Extend asks for the owner's claims before, so as not to wait for those of others, and
// after: what is there still was renewed, or claimed meanwhile. A transaction would take
// twice as many round trips, each of which shortens what is left of the leases. How many
// rows an update has changed says nothing: a driver may be set to count otherwise. The
// update is sent for no claims, too: it shows that the server takes writes.
func (m *database) Extend(ctx context.Context, db bun.IDB, owner string, lease time.Duration) (held []int64, err error) {
	var owned []int64
	if err := m.Query(ctx, db, ownedSQL, owner).Scan(ctx, &owned); err != nil {
		return nil, err
	}
	if _, err := m.Query(ctx, db, extendSQL, ordered(owned), lease.Microseconds(), owner).Exec(ctx); err != nil {
		return nil, err
	}
	err = m.Query(ctx, db, ownedSQL, owner).Scan(ctx, &held)
	return held, err
}

const disclaimSQL = forgetSQL + ` WHERE c.owner = ?`

func (m *database) Disclaim(ctx context.Context, db bun.IDB, owner string, claims []int64) error {
	return txn.InTx(ctx, db, func(tx bun.Tx) error {
		_, err := m.Query(ctx, tx, disclaimSQL, ordered(claims), owner).Exec(ctx)
		return err
	})
}

const (
	deadSQL = `SELECT id, solo, message_ids FROM {claims} FORCE INDEX (PRIMARY) WHERE leased_until < {now} ORDER BY id LIMIT 20 FOR UPDATE SKIP LOCKED`
	hitSQL  = `SELECT m.id, m.crashes FROM {ids} {messages} m FORCE INDEX (PRIMARY) ON m.id = j.id FOR UPDATE SKIP LOCKED`

	bumpSQL = `UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]', crashes BIGINT PATH '$[1]')) j STRAIGHT_JOIN {messages} m FORCE INDEX (PRIMARY) ON m.id = j.id
SET m.crashes = j.crashes`
)

// dyingSQL is immutable.
var dyingSQL = `
INSERT INTO {poisoned} (` + dialect.PoisonedColumns + `)
SELECT ` + dialect.PoisonedID("m.id") + `, m.message_id, m.consumer_type, m.payload_type, m.payload, m.headers, m.insert_id, m.created_at,
  m.available_after, m.attempts, m.crashes + 1, m.errors, {now}, ? FROM {ids} {messages} m FORCE INDEX (PRIMARY) ON m.id = j.id FOR UPDATE`

// Recover leaves messages alone that somebody has locked: a transactional
// consumer that outlived its lease is still at work on them, not crashed.
func (m *database) Recover(ctx context.Context, db bun.IDB, maxCrashes int) (found dialect.Recovered, err error) {
	err = txn.InTx(ctx, db, func(tx bun.Tx) error {
		found = dialect.Recovered{}
		var dead []dialect.Leased
		if err := m.Query(ctx, tx, deadSQL).Scan(ctx, &dead); err != nil || len(dead) == 0 {
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
		if err := m.Query(ctx, tx, hitSQL, ordered(ids)).Scan(ctx, &hit); err != nil {
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
		found = dialect.Recovered{Claims: len(dead), Crashed: len(hit), Poisoned: len(dying)}
		return m.run(ctx, tx, forgetSQL, claims)
	})
	if err != nil {
		return dialect.Recovered{}, err
	}
	return found, nil
}

// count writes the crashes of messages that are locked.
func (m *database) count(ctx context.Context, tx bun.Tx, dying []int64, bumped [][2]int64, maxCrashes int) error {
	if len(dying) > 0 {
		if _, err := m.Query(ctx, tx, dyingSQL, dialect.CrashReason(maxCrashes), ordered(dying)).Exec(ctx); err != nil {
			return fmt.Errorf("poison: %w", err)
		}
		if err := m.run(ctx, tx, brieflySQL+deleteSQL, dying); err != nil {
			return fmt.Errorf("delete: %w", err)
		}
	}
	if len(bumped) == 0 {
		return nil
	}
	_, err := m.Query(ctx, tx, bumpSQL, dialect.AsJSON(bumped)).Exec(ctx)
	return err
}
