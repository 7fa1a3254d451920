package postgres

import (
	"context"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
)

// extendSQL renews all claims of the owner, also an expired one that was not recovered yet. Like
// every statement that locks several claims it does so in the order of their ids, so that no two
// can deadlock.
const extendSQL = `
WITH live AS MATERIALIZED (SELECT id FROM {claims} WHERE owner = ? ORDER BY id FOR UPDATE)
UPDATE {claims} c SET leased_until = {now} + ?::bigint * interval '1 microsecond' FROM live l WHERE c.id = l.id RETURNING c.id`

func (p *database) Extend(ctx context.Context, db bun.IDB, owner string, lease time.Duration) (held []int64, err error) {
	err = p.on(ctx, db, []*fixed{p.extend}, func(s session) error {
		return s.run(ctx, p.extend, owner, lease.Microseconds()).Scan(ctx, &held)
	})
	return held, err
}

const disclaimSQL = `
WITH live AS MATERIALIZED (SELECT id FROM {claims} WHERE id = ANY(?::bigint[]) AND owner = ? ORDER BY id FOR UPDATE)
DELETE FROM {claims} c USING live l WHERE c.id = l.id`

func (p *database) Disclaim(ctx context.Context, db bun.IDB, owner string, claims []int64) error {
	return p.Exec(ctx, db, disclaimSQL, pgdialect.Array(claims), owner)
}
