package sqlite

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// headsSQL reads the first messages of lanes, by one look into the index for each.
const headsSQL = `
SELECT {lane columns}, m.available_after <= {now} AS due FROM (SELECT j.key AS o, j.value AS lane FROM json_each(?) j) l JOIN {messages} m ON m.id IN (
  SELECT h.id FROM {messages} h WHERE h.consumer_type = ? AND h.lane = l.lane AND h.lane IS NOT NULL ORDER BY h.lane, h.rank LIMIT ?)
WHERE ` + dialect.FreeLane + ` ORDER BY l.o, m.rank`

const recordLanesSQL = `
INSERT INTO {claims} (owner, solo, claimed_at, leased_until, consumer_type, message_ids, lanes)
VALUES (?, ?, {now}, {now} + ?, ?, ?, ?) RETURNING id`

// claimLanes needs no gate: it has the only write lock.
func (s *database) claimLanes(ctx context.Context, db *bun.DB, r dialect.ClaimRequest) (c dialect.Claim, err error) {
	err = s.InTx(ctx, db, func(tx bun.IDB) (err error) {
		c, err = s.ClaimLanes(ctx, tx, s, r)
		return err
	})
	if err != nil {
		return dialect.Claim{}, err
	}
	return c, nil
}

func (s *database) Heads(ctx context.Context, tx bun.IDB, l *dialect.Lanes, lanes []int64, each int) (picks []dialect.LanePick, err error) {
	args := append([]any{dialect.AsJSON(lanes), l.Name, each}, l.FreeValues()...)
	err = s.Query(ctx, tx, headsSQL, args...).Scan(ctx, &picks)
	return picks, err
}

func (s *database) RecordLanes(ctx context.Context, tx bun.IDB, r dialect.ClaimRequest, picks []dialect.LanePick) (id int64, err error) {
	ids := dialect.Each(picks, func(m dialect.LanePick) int64 { return m.ID })
	lanes := dialect.Each(picks, func(m dialect.LanePick) int64 { return m.Lane })
	err = s.Query(ctx, tx, recordLanesSQL, r.Owner, r.Solo, r.Lease.Microseconds(), r.Lanes.Name, dialect.AsJSON(ids), dialect.AsJSON(lanes)).Scan(ctx, &id)
	return id, err
}
