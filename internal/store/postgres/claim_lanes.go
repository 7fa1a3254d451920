package postgres

import (
	"context"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// beginLanesSQL leaves the planner no choice: with statistics that are out of date it would
// sort all messages of a consumer to find the first.
const beginLanesSQL = beginSharedSQL + `; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL max_parallel_workers_per_gather = 0`

// headsSQL reads the first messages of lanes, by one look into the index for each.
func headsSQL(renamed string) string {
	return `
SELECT r.* FROM unnest(?::bigint[]) WITH ORDINALITY l(lane, o) CROSS JOIN LATERAL (
  SELECT {lane columns}, m.available_after <= {now} AS due FROM {messages} m
  WHERE m.consumer_type = ? AND m.lane = l.lane AND m.lane IS NOT NULL ORDER BY m.lane, m.rank LIMIT ?) r
WHERE ` + dialect.FreeLane + renamed + ` ORDER BY l.o, r.rank`
}

const recordLanesSQL = `
INSERT INTO {claims} (owner, solo, claimed_at, leased_until, consumer_type, message_ids, lanes)
VALUES (?::text, ?::boolean, {now}, {now} + ?::bigint * interval '1 microsecond', ?::text, ?::bigint[], ?::bigint[]) RETURNING id`

func (p *database) claimLanes(ctx context.Context, db *bun.DB, r dialect.ClaimRequest) (c dialect.Claim, err error) {
	heads := p.heads
	if len(r.Lanes.Before) > 0 {
		heads = p.headsRenamed
	}
	statements := []*fixed{p.lanes[dialect.ProposeSQL], p.lanes[dialect.EdgeSQL], heads, p.recordLanes}
	err = p.on(ctx, db, statements, func(s session) error {
		return s.inTx(ctx, beginLanesSQL, func() (err error) {
			c, err = p.ClaimLanes(ctx, s.IDB, laneSession{s, heads}, r)
			return err
		})
	})
	if err != nil {
		return dialect.Claim{}, err
	}
	return c, nil
}

// laneSession is a connection on which messages with keys are claimed.
type laneSession struct {
	session
	heads *fixed
}

func (s laneSession) Run(ctx context.Context, statement string, args ...any) *bun.RawQuery {
	return s.run(ctx, s.lanes[statement], args...)
}

func (s laneSession) Heads(ctx context.Context, l *dialect.Lanes, lanes []int64, each int) (picks []dialect.LanePick, err error) {
	names := s.NameList(l.Names)
	args := []any{pgdialect.Array(lanes), l.Name, each, names, names, s.NameList([]string{l.Name})}
	if len(l.Before) > 0 {
		args = append(args, s.NameList(l.Before))
	}
	err = s.run(ctx, s.heads, args...).Scan(ctx, &picks)
	return picks, err
}

func (s laneSession) Record(ctx context.Context, r dialect.ClaimRequest, picks []dialect.LanePick) (id int64, err error) {
	ids := dialect.Each(picks, func(m dialect.LanePick) int64 { return m.ID })
	lanes := dialect.Each(picks, func(m dialect.LanePick) int64 { return m.Lane })
	err = s.run(ctx, s.recordLanes, r.Owner, r.Solo, r.Lease.Microseconds(), r.Lanes.Name, pgdialect.Array(ids), pgdialect.Array(lanes)).Scan(ctx, &id)
	return id, err
}
