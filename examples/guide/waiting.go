package guide

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// PackItem is produced for each item of an order.
type PackItem struct {
	OrderID string `json:"order_id"`
	Item    string `json:"item"`
}

// PayloadType is the name under which it is stored.
func (PackItem) PayloadType() string { return "item.pack" }

// ShipOrder is produced once all items are packed.
type ShipOrder struct {
	OrderID string `json:"order_id"`
}

// PayloadType is the name under which it is stored.
func (ShipOrder) PayloadType() string { return "order.ship" }

// CancelOrder is produced if an item cannot be packed.
type CancelOrder struct {
	OrderID string `json:"order_id"`
}

// PayloadType is the name under which it is stored.
func (CancelOrder) PayloadType() string { return "order.cancel" }

// PackOrder produces a message for each item, and what follows when all are packed.
func PackOrder(ctx context.Context, db *bun.DB, producer *outbox.Producer, order string, items []string) error {
	// snippet: group
	all := outbox.Group("order:" + order)
	return producer.RunInTx(ctx, db, func(ctx context.Context, tx bun.Tx) error {
		for _, item := range items {
			if _, err := producer.Produce(ctx, tx, PackItem{order, item}, all); err != nil {
				return err
			}
		}
		return producer.WhenDone(ctx, tx, all, ShipOrder{order}, outbox.IfPoisoned(CancelOrder{order}))
	})
	// end
}

// PackParts is a consumer of items that consist of parts.
func PackParts(ctx context.Context, tx bun.Tx, producer *outbox.Producer, e PackItem, parts []string) error {
	// snippet: grow
	m, _ := bus.MessageFromContext(ctx)
	for _, part := range parts {
		if _, err := producer.Produce(ctx, tx, PackItem{e.OrderID, part}, outbox.Group(m.Group)); err != nil {
			return err
		}
	}
	// end
	return nil
}
