package postgres

import (
	"context"
	"slices"
	"strings"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// beginLanesSQL fixes the plan: with outdated statistics it would sort all messages of a consumer
// to find the first.
const beginLanesSQL = beginSharedSQL + `; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL max_parallel_workers_per_gather = 0`

// headsSQL reads the first messages of lanes, by one index lookup each.
const headsSQL = `
SELECT r.* FROM unnest(?::bigint[]) WITH ORDINALITY l(lane, o) CROSS JOIN LATERAL (
  SELECT {lane columns}, m.available_after <= {now} AS due FROM {messages} m
  WHERE m.consumer_type = ? AND m.lane = l.lane AND m.lane IS NOT NULL{runnable} ORDER BY m.lane, m.rank LIMIT ?) r
WHERE {free} ORDER BY l.o, r.rank`

const recordLanesSQL = `
INSERT INTO {claims} (owner, solo, claimed_at, leased_until, leased_for, consumer_type, message_ids, lanes)
VALUES (?::text, ?::boolean, {now}, {now} + ?::bigint * interval '1 microsecond', ?::bigint, ?::text, ?::bigint[], ?::bigint[]) RETURNING id`

func (p *database) claimLanes(ctx context.Context, db *bun.DB, r dialect.ClaimRequest) (c dialect.Claim, err error) {
	propose, edge := p.Looks(r.Lanes.Source)
	heads, _ := p.headsOf(r.Lanes)
	statements := []*fixed{p.laneStatement(propose), p.laneStatement(edge), p.laneStatement(heads), p.recordLanes}
	err = p.on(ctx, db, statements, func(s session) error {
		return s.inTx(ctx, beginLanesSQL, func() (err error) {
			c, err = p.ClaimLanes(ctx, s.IDB, laneSession{s}, r)
			return err
		})
	})
	if err != nil {
		return dialect.Claim{}, err
	}
	return c, nil
}

// PollLanes fixes the plan of looks that go from one lane to the next.
func (p *database) PollLanes(ctx context.Context, db bun.IDB, looks []dialect.LaneLook, crashed bool) ([]dialect.LaneState, error) {
	look := func(db bun.IDB) ([]dialect.LaneState, error) { return p.Names.PollLanes(ctx, db, looks, crashed) }
	if slices.ContainsFunc(looks, func(l dialect.LaneLook) bool { return l.Blocked }) {
		return interpreted(ctx, db, look)
	}
	return look(db)
}

// headsOf returns headsSQL for the lanes, with the values of its conditions.
func (p *database) headsOf(l *dialect.Lanes) (statement string, values []any) {
	free, values := p.Free("l", "r", l.Source)
	return l.For(strings.Replace(headsSQL, "{free}", free, 1)), values
}

// laneStatement returns a statement about lanes, which differs by their rules.
func (p *database) laneStatement(text string) *fixed {
	if f, ok := p.lanes.Load(text); ok {
		return f.(*fixed)
	}
	f, _ := p.lanes.LoadOrStore(text, p.fix("lanes", text))
	return f.(*fixed)
}

// laneSession is a connection on which messages with keys are claimed.
type laneSession struct{ session }

func (s laneSession) Run(ctx context.Context, statement string, args ...any) *bun.RawQuery {
	return s.run(ctx, s.laneStatement(statement), args...)
}

func (s laneSession) Heads(ctx context.Context, l *dialect.Lanes, lanes []int64, each int) (picks []dialect.LanePick, err error) {
	heads, values := s.headsOf(l)
	args := append([]any{pgdialect.Array(lanes), l.Name}, append(l.Runnable(s.Names), each)...)
	err = s.run(ctx, s.laneStatement(heads), append(args, values...)...).Scan(ctx, &picks)
	return picks, err
}

func (s laneSession) Record(ctx context.Context, r dialect.ClaimRequest, picks []dialect.LanePick) (id int64, err error) {
	ids := dialect.Each(picks, func(m dialect.LanePick) int64 { return m.ID })
	lanes := dialect.Each(picks, func(m dialect.LanePick) int64 { return m.Lane })
	lease := r.Lease.Microseconds()
	err = s.run(ctx, s.recordLanes, r.Owner, r.Solo, lease, lease, r.Lanes.Name, pgdialect.Array(ids), pgdialect.Array(lanes)).
		Scan(ctx, &id)
	return id, err
}
