package main

import (
	"context"

	"github.com/jmoiron/sqlx"

	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// sqlxShop uses sqlx: sqlx.NewDb(db, "pgx").
type sqlxShop struct {
	db       *sqlx.DB
	producer *outbox.Producer
}

func (s *sqlxShop) PlaceOrder(ctx context.Context, order Order) error {
	tx, err := s.db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.NamedExecContext(ctx, "INSERT INTO orders (id, item) VALUES (:id, :item)", order); err != nil {
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
