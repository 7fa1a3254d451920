package postgres

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

func (p *database) Unregistered(ctx context.Context, db bun.IDB, wants []dialect.Want) (found []dialect.Unregistered, err error) {
	w := columnsOf(wants)
	err = p.interpreted(ctx, db, func(db bun.IDB) error {
		return p.Query(ctx, db, dialect.UnregisteredAmong(`SELECT * FROM unnest(?::text[], ?::text[])`), pgdialect.Array(w.consumers), pgdialect.Array(w.payloads)).Scan(ctx, &found)
	})
	return found, err
}

func (p *database) Stats(ctx context.Context, db bun.IDB, consumers []string) (rows []dialect.QueueStats, err error) {
	err = p.interpreted(ctx, db, func(db bun.IDB) (err error) {
		rows, err = p.Returning.Stats(ctx, db, consumers)
		return err
	})
	return rows, err
}

// interpreted runs a statement that PostgreSQL would compile, for seconds on a busy machine:
// it walks from one name to the next, and the planner takes it for far more work than it is.
// In a caller's transaction it is left alone, since the setting would stay.
func (p *database) interpreted(ctx context.Context, db bun.IDB, fn func(bun.IDB) error) error {
	if _, callers := db.(bun.Tx); callers {
		return fn(db)
	}
	return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewRaw(`SELECT set_config('jit', 'off', true)`).Exec(ctx); err != nil {
			return fmt.Errorf("settings: %w", err)
		}
		return fn(tx)
	})
}

func (p *database) Listed(names []string) (statement string, arg any) {
	return `SELECT unnest(?::text[]) AS consumer`, pgdialect.Array(names)
}
