package pgxtx

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// ConsumeTx is outbox.ConsumeTx with a pgx.Tx. [From] lists what fn can do with it. The processor's
// database must be one of pgx, made by [Open] or with pgx's package stdlib: outbox.Processor.Run
// refuses any other. Rows that fn leaves open are closed when it returns.
func ConsumeTx[T bus.Payload](
	name string, fn func(ctx context.Context, tx pgx.Tx, payload T) error, options ...bus.ConsumerOption,
) bus.Consumer {
	if fn == nil {
		return outbox.ConsumeTx[T, *sql.Tx](name, nil, options...)
	}
	return outbox.ConsumeTx(name, func(ctx context.Context, tx *sql.Tx, payload T) error {
		return inTx(ctx, tx, func(tx pgx.Tx) error { return fn(ctx, tx, payload) })
	}, onlyOnPgx(options)...)
}

// ConsumeBatchTx is outbox.ConsumeBatchTx with a pgx.Tx: see [ConsumeTx].
func ConsumeBatchTx[T bus.Payload](
	name string, fn func(ctx context.Context, tx pgx.Tx, payloads []T) error, options ...bus.ConsumerOption,
) bus.Consumer {
	if fn == nil {
		return outbox.ConsumeBatchTx[T, *sql.Tx](name, nil, options...)
	}
	return outbox.ConsumeBatchTx(name, func(ctx context.Context, tx *sql.Tx, payloads []T) error {
		return inTx(ctx, tx, func(tx pgx.Tx) error { return fn(ctx, tx, payloads) })
	}, onlyOnPgx(options)...)
}

// onlyOnPgx adds an option that makes outbox.Processor.Run refuse a database that is not one of pgx.
func onlyOnPgx(options []bus.ConsumerOption) []bus.ConsumerOption {
	return append(options[:len(options):len(options)], func(c *bus.ConsumerConfig) {
		access.SetDatabaseCheck(c, func(ctx context.Context, db *sql.DB) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback() //nolint:errcheck // it has written nothing
			_, err = from(ctx, tx)
			return err
		})
	})
}

func inTx(ctx context.Context, tx *sql.Tx, fn func(tx pgx.Tx) error) error {
	t, err := from(ctx, tx)
	if err != nil {
		return err
	}
	defer t.finish()
	return fn(t)
}
