package postgres

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

func (p *database) Unhandled(ctx context.Context, db bun.IDB, wants []dialect.Want) ([]dialect.Unhandled, error) {
	w := columnsOf(wants)
	return interpreted(ctx, db, func(db bun.IDB) (found []dialect.Unhandled, err error) {
		err = p.Query(ctx, db, dialect.UnregisteredAmong(`SELECT * FROM unnest(?::text[], ?::text[])`), pgdialect.Array(w.consumers), pgdialect.Array(w.payloads)).
			Scan(ctx, &found)
		return found, err
	})
}

func (p *database) Stats(ctx context.Context, db bun.IDB, consumers []string) ([]dialect.QueueStats, error) {
	return interpreted(ctx, db, func(db bun.IDB) ([]dialect.QueueStats, error) { return p.Returning.Stats(ctx, db, consumers) })
}

func (p *database) StoredConsumers(ctx context.Context, db bun.IDB) ([]string, error) {
	return interpreted(ctx, db, func(db bun.IDB) ([]string, error) { return p.Returning.StoredConsumers(ctx, db) })
}

func (p *database) PoisonGroups(
	ctx context.Context, db bun.IDB, consumer string, most int,
) (groups []dialect.GroupKey, whole bool, err error) {
	groups, err = interpreted(ctx, db, func(db bun.IDB) (found []dialect.GroupKey, err error) {
		found, whole, err = p.Returning.PoisonGroups(ctx, db, consumer, most)
		return found, err
	})
	return groups, whole, err
}

// interpreted runs a statement with JIT off. It walks from one name to the next, the planner
// overestimates it, and PostgreSQL would compile it, for seconds on a busy machine. It also must
// not read all of a consumer by a bitmap, to find the first, where an index has their order. In a
// caller's transaction nothing is set, since the setting would stay.
func interpreted[T any](ctx context.Context, db bun.IDB, fn func(bun.IDB) (T, error)) (result T, err error) {
	if _, callers := db.(bun.Tx); callers {
		return fn(db)
	}
	err = txn.RunOwn(ctx, db, func(ctx context.Context, tx bun.Tx) (err error) {
		if _, err := tx.NewRaw(`SELECT set_config('jit', 'off', true), set_config('enable_bitmapscan', 'off', true)`).Exec(ctx); err != nil {
			return fmt.Errorf("settings: %w", err)
		}
		result, err = fn(tx)
		return err
	})
	return result, err
}

func (p *database) Listed(names []string) (statement string, arg any) {
	return `SELECT unnest(?::text[]) AS consumer`, pgdialect.Array(names)
}
