package main

import (
	"context"
	"database/sql"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/examples/transactions/stdqueries"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// sqlShop uses database/sql, with the queries of sqlc.
type sqlShop struct {
	db       *sql.DB
	queries  *stdqueries.Queries
	producer *outbox.Producer
}

// snippet: produce

func (s *sqlShop) PlaceOrder(ctx context.Context, order Order) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	err = s.queries.WithTx(tx).InsertOrder(ctx, stdqueries.InsertOrderParams{ID: order.ID, Item: order.Item})
	if err != nil {
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

// end

// snippet: consume

func newSQLConsumer(queries *stdqueries.Queries) bus.Consumer {
	return outbox.ConsumeTx("handle-with-database-sql", func(ctx context.Context, tx *sql.Tx, e OrderPlaced) error {
		return queries.WithTx(tx).HandleOrder(ctx, e.OrderID)
	})
}

// end
