package guide

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// PlaceOrder writes an order and its message.
func PlaceOrder(ctx context.Context, db *bun.DB, producer *outbox.Producer, order Order) error {
	// snippet: transaction
	return producer.RunInTx(ctx, db, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(&order).Exec(ctx); err != nil {
			return err
		}
		_, err := producer.Produce(ctx, tx, OrderPlaced{OrderID: order.ID})
		return err
	})
	// end
}

// PlaceOrderIn does so in a transaction that the caller has begun.
func PlaceOrderIn(ctx context.Context, tx bun.Tx, producer *outbox.Producer, order Order) error {
	if _, err := tx.NewInsert().Model(&order).Exec(ctx); err != nil {
		return err
	}
	_, err := producer.Produce(ctx, tx, OrderPlaced{OrderID: order.ID})
	return err
}

// Offer writes what may fail behind a savepoint: the transaction goes on without it.
func Offer(ctx context.Context, tx bun.Tx, producer *outbox.Producer, order Order, reserve func(context.Context, bun.Tx) error) error {
	// snippet: savepoint
	err := tx.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := producer.Produce(ctx, tx, OrderPlaced{OrderID: order.ID}); err != nil {
			return err
		}
		return reserve(ctx, tx)
	})
	if errors.Is(err, ErrNoOrder) {
		return nil // nothing was produced; the rest of the transaction stays
	}
	return err
	// end
}

// RemindLater produces a reminder, unless there is one.
func RemindLater(ctx context.Context, db bun.IDB, producer *outbox.Producer, order string) error {
	// snippet: options
	receipt, err := producer.Produce(ctx, db, ReminderDue{OrderID: order},
		outbox.Delay(24*time.Hour),         // on the database's clock
		outbox.InsertID("reminder:"+order), // at most one pending for each consumer
		outbox.Header("tenant", "acme"))    // passed to every consumer
	if err == nil && receipt.Enqueued == 0 {
		slog.InfoContext(ctx, "reminder already pending", "duplicates", receipt.Duplicates)
	}
	// end
	return err
}

// PlaceOrders produces many messages at once.
func PlaceOrders(ctx context.Context, db bun.IDB, producer *outbox.Producer, orders []Order) error {
	// snippet: batch
	items := make([]outbox.Item, len(orders))
	for i, order := range orders {
		items[i] = outbox.Item{Payload: OrderPlaced{OrderID: order.ID}}
	}
	_, err := producer.ProduceMany(ctx, db, items...) // all or none, in few statements
	// end
	return err
}
