package store

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// pgLockPending also tells whether the transaction, which may be the caller's, would
// see the newest claims. What is claimed it does not lock: the transaction may take any
// time, and whoever has the claim could not settle it.
const pgLockPending = `SELECT id, current_setting('transaction_isolation') AS isolation FROM {messages}
	WHERE id IN (?) AND id NOT IN (` + pgHeld + `) ORDER BY id FOR UPDATE SKIP LOCKED`

func (p *postgres) lockPending(ctx context.Context, tx bun.Tx, callers bool, ids []int64) ([]int64, error) {
	if !callers {
		if err := p.bound(ctx, tx); err != nil {
			return nil, err
		}
	}
	var rows []struct {
		ID        int64
		Isolation string
	}
	err := p.raw(ctx, tx, pgLockPending, bun.List(ids)).Scan(ctx, &rows)
	locked := make([]int64, len(rows))
	for i, row := range rows {
		if row.Isolation != "read committed" {
			return nil, fmt.Errorf("%w: the transaction is %s, and would not see the newest claims: read committed is allowed", bus.ErrBadOption, row.Isolation)
		}
		locked[i] = row.ID
	}
	return locked, err
}

// requeue sorts as producers do, by bytes.
func (p *postgres) requeue(ctx context.Context, tx bun.Tx, rows []Poisoned, how Requeuing) ([]pendingKey, error) {
	return p.requeueAs(ctx, tx, idsOf(rows), how, ` COLLATE "C"`)
}

const pgDeletePoisoned = `DELETE FROM {poisoned} WHERE id IN (SELECT id FROM {poisoned} WHERE id IN (?) ORDER BY id FOR UPDATE)`

func (p *postgres) deletePoisoned(ctx context.Context, db bun.IDB, ids []int64) (int, error) {
	return affected(p.raw(ctx, db, pgDeletePoisoned, bun.List(ids)).Exec(ctx))
}

func (p *postgres) held() string { return pgHeld }

func (p *postgres) heldClaims() string {
	return `SELECT c.id AS claim_id, u.mid FROM {claims} c CROSS JOIN LATERAL unnest(c.message_ids) u(mid)`
}

// literals wants what has been the default since PostgreSQL 9.1: with off, a backslash in a
// value would escape the quote that ends it.
func (p *postgres) literals(ctx context.Context, db bun.IDB) error {
	var setting string
	if err := db.NewRaw(`SELECT current_setting('standard_conforming_strings')`).Scan(ctx, &setting); err != nil {
		return err
	}
	if setting != "on" {
		return fmt.Errorf("standard_conforming_strings %s: on is needed, or text with a backslash could end its literal: set it back for the server, the database, the role or the DSN, wherever it was changed", setting)
	}
	return nil
}
