package main

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// bunShop uses Bun.
type bunShop struct {
	db       *bun.DB
	producer *outbox.Producer
}

func (s *bunShop) PlaceOrder(ctx context.Context, order Order) error {
	return s.producer.RunInTx(ctx, s.db, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(&order).Exec(ctx); err != nil {
			return err
		}
		if _, err := s.producer.Produce(ctx, tx, OrderPlaced{OrderID: order.ID}); err != nil {
			return err
		}
		return checkStock(order)
	})
}

func newBunConsumer() bus.Consumer {
	return outbox.ConsumeTx("handle-with-bun", func(ctx context.Context, tx bun.Tx, e OrderPlaced) error {
		_, err := tx.NewUpdate().Model((*Order)(nil)).Set("handled = handled + 1").Where("id = ?", e.OrderID).Exec(ctx)
		return err
	})
}
