package main

import (
	"context"
	"database/sql"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/examples/transactions/ent"
	"github.com/asyncmonolith/asyncmonolith-go/examples/transactions/ent/order"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// entShop uses ent, generated with --feature sql/execquery.
type entShop struct {
	client   *ent.Client
	producer *outbox.Producer
}

func openEnt(db *sql.DB) *ent.Client {
	return ent.NewClient(ent.Driver(entsql.OpenDB(dialect.Postgres, db)))
}

func (s *entShop) PlaceOrder(ctx context.Context, order Order) error {
	tx, err := s.client.Tx(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := tx.Order.Create().SetID(order.ID).SetItem(order.Item).Exec(ctx); err != nil {
		return err
	}
	if _, err := s.producer.Produce(ctx, tx, OrderPlaced{OrderID: order.ID}); err != nil {
		return err
	}
	if err := checkStock(order); err != nil {
		return err
	}
	return tx.Commit()
}

func newEntConsumer() bus.Consumer {
	return outbox.ConsumeTx("handle-with-ent", func(ctx context.Context, tx *sql.Tx, e OrderPlaced) error {
		driver := entsql.NewDriver(dialect.Postgres, entsql.Conn{ExecQuerier: tx})
		return ent.NewClient(ent.Driver(driver)).Order.Update().
			Where(order.ID(e.OrderID)).AddHandled(1).Exec(ctx)
	})
}
