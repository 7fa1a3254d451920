package mariadb

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

const (
	ownedSQL  = `SELECT id FROM {claims} WHERE owner = ? ORDER BY id`
	extendSQL = longerSQL + `UPDATE {ids} {claims} c FORCE INDEX (PRIMARY) ON c.id = j.id SET c.leased_until = {now} + ? WHERE c.owner = ?`
)

// Extend reads the owner's claims before the update, to avoid waiting for other claims, and after
// it: those that still exist were renewed, or claimed meanwhile. A transaction would take twice as
// many round trips, each of which shortens the leases. The number of changed rows shows nothing: a
// driver may be set to count otherwise. The update is sent even without claims: it shows that the
// server accepts writes.
func (m *database) Extend(ctx context.Context, db bun.IDB, owner string, lease time.Duration) (held []int64, err error) {
	var owned []int64
	if err := m.Query(ctx, db, ownedSQL, owner).Scan(ctx, &owned); err != nil {
		return nil, err
	}
	if err := m.Exec(ctx, db, extendSQL, dialect.Ordered(owned), lease.Microseconds(), owner); err != nil {
		return nil, err
	}
	err = m.Query(ctx, db, ownedSQL, owner).Scan(ctx, &held)
	return held, err
}

const disclaimSQL = forgetSQL + ` WHERE c.owner = ?`

func (m *database) Disclaim(ctx context.Context, db bun.IDB, owner string, claims []int64) error {
	return txn.InTx(ctx, db, func(tx bun.Tx) error {
		return m.Exec(ctx, tx, disclaimSQL, dialect.Ordered(claims), owner)
	})
}
