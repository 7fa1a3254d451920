package dialect

import (
	"context"

	"github.com/uptrace/bun"
)

// ClaimKeyed claims messages with keys, of one consumer.
func (l *Lists) ClaimKeyed(ctx context.Context, db bun.IDB, r ClaimRequest) (c Claim, err error) {
	err = l.Dialect.InTx(ctx, db, func(tx bun.IDB) (err error) {
		c, err = l.Dialect.Tables().ClaimLanes(ctx, tx, listLanes{l, tx}, r)
		return err
	})
	if err != nil {
		return Claim{}, err
	}
	return c, nil
}

// listLanes is the transaction of such a claim.
type listLanes struct {
	*Lists
	tx bun.IDB
}

// Run implements [LaneDialect].
func (l listLanes) Run(ctx context.Context, statement string, args ...any) *bun.RawQuery {
	return l.Dialect.Query(ctx, l.tx, statement, args...)
}

// Heads implements [LaneDialect].
func (l listLanes) Heads(ctx context.Context, of *Lanes, lanes []int64, each int) ([]LanePick, error) {
	return l.Dialect.Heads(ctx, l.tx, of, lanes, each)
}

const recordLanes = `INSERT INTO {claims} (owner, solo, claimed_at, leased_until, leased_for, consumer_type, message_ids, lanes)
VALUES (?, ?, {now}, {now} + ?, ?, ?, ?, ?)`

// Record implements [LaneDialect].
func (l listLanes) Record(ctx context.Context, r ClaimRequest, picks []LanePick) (id int64, err error) {
	ids := Each(picks, func(p LanePick) int64 { return p.ID })
	lanes := Each(picks, func(p LanePick) int64 { return p.Lane })
	lease := r.Lease.Microseconds()
	return l.Dialect.InsertID(ctx, l.tx, recordLanes, r.Owner, r.Solo, lease, lease, r.Lanes.Name, AsJSON(ids), AsJSON(lanes))
}

// Walk implements [LaneDialect].
func (l listLanes) Walk(ctx context.Context, tx bun.IDB, of *Lanes) ([]Walked, bool, error) {
	return l.Dialect.Walk(ctx, tx, of)
}
