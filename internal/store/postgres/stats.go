package postgres

import (
	"context"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// Unregistered has settings of its own, but in a caller's transaction: the planner cannot
// know how few rows there are, and compiles what it takes for much work.
func (p *database) Unregistered(ctx context.Context, db bun.IDB, wants []dialect.Want) (found []dialect.Unregistered, err error) {
	w := columnsOf(wants)
	look := func(db bun.IDB) error {
		return p.Query(ctx, db, dialect.UnregisteredAmong(`SELECT * FROM unnest(?::text[], ?::text[])`), pgdialect.Array(w.consumers), pgdialect.Array(w.payloads)).Scan(ctx, &found)
	}
	if _, callers := db.(bun.Tx); callers {
		err = look(db)
		return found, err
	}
	err = db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if err := p.bound(ctx, tx); err != nil {
			return err
		}
		return look(tx)
	})
	return found, err
}

func (p *database) Listed(names []string) (statement string, arg any) {
	return `SELECT unnest(?::text[]) AS consumer`, pgdialect.Array(names)
}
