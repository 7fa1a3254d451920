package sqlite

import (
	"context"
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// headsSQL reads the first messages of lanes, by one index lookup each.
const headsSQL = `
SELECT {lane columns}, m.available_after <= {now} AS due FROM (SELECT j.key AS o, j.value AS lane FROM json_each(?) j) l JOIN {messages} m ON m.id IN (
  SELECT m.id FROM {messages} m WHERE m.consumer_type = ? AND m.lane = l.lane AND m.lane IS NOT NULL{runnable} ORDER BY m.lane, m.rank LIMIT ?)
WHERE {free} ORDER BY l.o, m.rank`

const recordLanesSQL = `
INSERT INTO {claims} (owner, solo, claimed_at, leased_until, consumer_type, message_ids, lanes)
VALUES (?, ?, {now}, {now} + ?, ?, ?, ?) RETURNING id`

// claimLanes holds the only write lock. Of the gate it needs only the state of the lanes.
func (s *database) claimLanes(ctx context.Context, db *bun.DB, r dialect.ClaimRequest) (c dialect.Claim, err error) {
	err = s.InTx(ctx, db, func(tx bun.IDB) (err error) {
		c, err = s.ClaimLanes(ctx, tx, laneTx{s, tx}, r)
		return err
	})
	if err != nil {
		return dialect.Claim{}, err
	}
	return c, nil
}

// laneTx is a transaction in which messages with keys are claimed.
type laneTx struct {
	*database
	tx bun.IDB
}

func (s laneTx) Run(ctx context.Context, statement string, args ...any) *bun.RawQuery {
	return s.Query(ctx, s.tx, statement, args...)
}

func (s laneTx) Heads(ctx context.Context, l *dialect.Lanes, lanes []int64, each int) (picks []dialect.LanePick, err error) {
	free, values := s.Free("l", "m", l.Source)
	args := append([]any{dialect.AsJSON(lanes), l.Name}, append(l.Runnable(s.Names), each)...)
	err = s.Query(ctx, s.tx, l.For(strings.Replace(headsSQL, "{free}", free, 1)), append(args, values...)...).Scan(ctx, &picks)
	return picks, err
}

func (s laneTx) Record(ctx context.Context, r dialect.ClaimRequest, picks []dialect.LanePick) (id int64, err error) {
	ids := dialect.Each(picks, func(m dialect.LanePick) int64 { return m.ID })
	lanes := dialect.Each(picks, func(m dialect.LanePick) int64 { return m.Lane })
	err = s.Query(ctx, s.tx, recordLanesSQL, r.Owner, r.Solo, r.Lease.Microseconds(), r.Lanes.Name, dialect.AsJSON(ids),
		dialect.AsJSON(lanes)).
		Scan(ctx, &id)
	return id, err
}
