package postgres

import (
	"context"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// beginLanesSQL leaves the planner no choice: with statistics that are out of date it would
// sort all messages of a consumer to find the first.
const beginLanesSQL = beginSQL + `; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL max_parallel_workers_per_gather = 0`

// headsSQL reads the first messages of lanes, by one look into the index for each.
const headsSQL = `
SELECT r.* FROM unnest(?::bigint[]) WITH ORDINALITY l(lane, o) CROSS JOIN LATERAL (
  SELECT {lane columns}, m.available_after <= {now} AS due FROM {messages} m
  WHERE m.consumer_type = ? AND m.lane = l.lane AND m.lane IS NOT NULL ORDER BY m.lane, m.rank LIMIT ?) r
WHERE ` + dialect.FreeLane + ` ORDER BY l.o, r.rank`

const recordLanesSQL = `
INSERT INTO {claims} (owner, solo, claimed_at, leased_until, consumer_type, message_ids, lanes)
VALUES (?, ?, {now}, {now} + ?::bigint * interval '1 microsecond', ?, ?::bigint[], ?::bigint[]) RETURNING id`

func (p *database) claimLanes(ctx context.Context, db *bun.DB, r dialect.ClaimRequest) (c dialect.Claim, err error) {
	err = p.on(ctx, db, nil, func(s session) error {
		return s.inTx(ctx, beginLanesSQL, func() (err error) {
			c, err = p.ClaimLanes(ctx, s.IDB, p, r)
			return err
		})
	})
	if err != nil {
		return dialect.Claim{}, err
	}
	return c, nil
}

func (p *database) Heads(ctx context.Context, tx bun.IDB, l *dialect.Lanes, lanes []int64, each int) (picks []dialect.LanePick, err error) {
	args := append([]any{pgdialect.Array(lanes), l.Name, each}, l.FreeValues()...)
	err = p.Query(ctx, tx, headsSQL, args...).Scan(ctx, &picks)
	return picks, err
}

func (p *database) RecordLanes(ctx context.Context, tx bun.IDB, r dialect.ClaimRequest, picks []dialect.LanePick) (id int64, err error) {
	ids := dialect.Each(picks, func(m dialect.LanePick) int64 { return m.ID })
	lanes := dialect.Each(picks, func(m dialect.LanePick) int64 { return m.Lane })
	err = p.Query(ctx, tx, recordLanesSQL, r.Owner, r.Solo, r.Lease.Microseconds(), r.Lanes.Name, pgdialect.Array(ids), pgdialect.Array(lanes)).Scan(ctx, &id)
	return id, err
}
