package main

import (
	"context"
	"database/sql"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// gormShop uses GORM.
type gormShop struct {
	db       *gorm.DB
	producer *outbox.Producer
}

// openGORM returns GORM on a *sql.DB or in a *sql.Tx.
func openGORM(conn gorm.ConnPool) (*gorm.DB, error) {
	return gorm.Open(postgres.New(postgres.Config{Conn: conn}), &gorm.Config{
		SkipDefaultTransaction: true,
		DisableAutomaticPing:   true,
	})
}

// snippet: produce

func (s *gormShop) PlaceOrder(ctx context.Context, order Order) error {
	return s.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&order).Error; err != nil {
			return err
		}
		if _, err := s.producer.Produce(ctx, tx.Statement.ConnPool, OrderPlaced{OrderID: order.ID}); err != nil {
			return err
		}
		return checkStock(order)
	})
}

// end

// snippet: consume

func newGORMConsumer() bus.Consumer {
	return outbox.ConsumeTx("handle-with-gorm", func(ctx context.Context, tx *sql.Tx, e OrderPlaced) error {
		db, err := openGORM(tx) // gorm.Open with SkipDefaultTransaction and DisableAutomaticPing
		if err != nil {
			return err
		}
		return db.WithContext(ctx).Model(&Order{ID: e.OrderID}).Update("handled", gorm.Expr("handled + 1")).Error
	})
}

// end
