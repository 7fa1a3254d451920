package main

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/pgxtx"
)

// newPool opens the pool that the service and the library share, nil unless -driver is pgx. It is made before
// the database on it, and so closed after that.
func newPool(lifecycle fx.Lifecycle, s settings) (*pgxpool.Pool, error) {
	if s.driver != "pgx" {
		return nil, nil
	}
	config, err := pgxpool.ParseConfig(s.dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 20 // the processor needs 11 of them
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, err
	}
	lifecycle.Append(fx.StopHook(pool.Close))
	return pool, nil
}

// placeInPgx places orders in transactions of pgx. Within wakes the processor at the commit.
func placeInPgx(pool *pgxpool.Pool, producer *outbox.Producer) placeOrder {
	return func(ctx context.Context, order Order) error {
		return producer.Within(ctx, func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "INSERT INTO orders (id, item, placed_at) VALUES ($1, $2, $3)", order.ID, order.Item, order.PlacedAt)
				if err != nil {
					return err
				}
				_, err = producer.Produce(ctx, pgxtx.Of(tx), OrderPlaced{OrderID: order.ID, Item: order.Item})
				return err
			})
		})
	}
}
