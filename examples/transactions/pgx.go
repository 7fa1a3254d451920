package main

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/examples/transactions/pgxqueries"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/pgxtx"
)

// pgxShop uses pgx, with the queries of sqlc.
type pgxShop struct {
	pool     *pgxpool.Pool
	queries  *pgxqueries.Queries
	producer *outbox.Producer
}

// snippet: produce

func (s *pgxShop) PlaceOrder(ctx context.Context, order Order) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		err := s.queries.WithTx(tx).InsertOrder(ctx, pgxqueries.InsertOrderParams{ID: order.ID, Item: order.Item})
		if err != nil {
			return err
		}
		if _, err := s.producer.Produce(ctx, pgxtx.Of(tx), OrderPlaced{OrderID: order.ID}); err != nil {
			return err
		}
		return checkStock(order)
	})
}

// end

// snippet: within

// PlaceOrderNow wakes the processors of this process at the commit.
func (s *pgxShop) PlaceOrderNow(ctx context.Context, order Order) error {
	return s.producer.Within(ctx, func(ctx context.Context) error { // PlaceOrder produces with this ctx
		return s.PlaceOrder(ctx, order)
	})
}

// end

// snippet: consume

func newPgxConsumer(queries *pgxqueries.Queries) bus.Consumer {
	return pgxtx.ConsumeTx("handle-with-pgx", func(ctx context.Context, tx pgx.Tx, e OrderPlaced) error {
		return queries.WithTx(tx).HandleOrder(ctx, e.OrderID)
	})
}

// end
