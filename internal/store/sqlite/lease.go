package sqlite

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

const extendSQL = `UPDATE {claims} SET leased_until = {now} + ? WHERE owner = ? RETURNING id`

func (s *database) Extend(ctx context.Context, db bun.IDB, owner string, lease time.Duration) (held []int64, err error) {
	err = s.Query(ctx, db, extendSQL, lease.Microseconds(), owner).Scan(ctx, &held)
	return held, err
}

const disclaimSQL = `DELETE FROM {claims} WHERE id IN (SELECT value FROM json_each(?)) AND owner = ?`

func (s *database) Disclaim(ctx context.Context, db bun.IDB, owner string, claims []int64) error {
	return s.Exec(ctx, db, disclaimSQL, dialect.AsJSON(claims), owner)
}
