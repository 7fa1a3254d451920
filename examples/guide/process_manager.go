package guide

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Fulfilment is the state of one order: one row, by its key.
type Fulfilment struct {
	bun.BaseModel `bun:"table:fulfilments"`

	OrderID string `bun:"order_id,pk"`
	State   string `bun:"state"` // reserving, paid, cancelled
}

// What the process manager reacts to, and what it asks for.
type (
	OrderPaid      struct{ OrderID string }
	PaymentOverdue struct{ OrderID string }
	ReserveGoods   struct{ OrderID string }
	ReleaseGoods   struct{ OrderID string }
	ShipGoods      struct{ OrderID string }
)

// PayloadType is the name under which it is stored.
func (OrderPaid) PayloadType() string { return "order.paid" }

// PayloadType is the name under which it is stored.
func (PaymentOverdue) PayloadType() string { return "payment.overdue" }

// PayloadType is the name under which it is stored.
func (ReserveGoods) PayloadType() string { return "goods.reserve" }

// PayloadType is the name under which it is stored.
func (ReleaseGoods) PayloadType() string { return "goods.release" }

// PayloadType is the name under which it is stored.
func (ShipGoods) PayloadType() string { return "goods.ship" }

// ProcessManager leads an order from its placement to its shipment, or back.
type ProcessManager struct {
	Producer *outbox.Producer
}

// snippet: process-manager

// Consumers are transactional: the state and the next messages commit together.
func (p *ProcessManager) Consumers() []bus.Consumer {
	return []bus.Consumer{
		outbox.ConsumeTx("fulfilment.begin", p.begin),
		outbox.ConsumeTx("fulfilment.paid", p.paid),
		outbox.ConsumeTx("fulfilment.overdue", p.overdue),
	}
}

func (p *ProcessManager) begin(ctx context.Context, tx bun.Tx, e OrderPlaced) error {
	row := Fulfilment{OrderID: e.OrderID, State: "reserving"}
	if _, err := tx.NewInsert().Model(&row).Exec(ctx); err != nil {
		return err
	}
	if _, err := p.Producer.Produce(ctx, tx, ReserveGoods(e)); err != nil {
		return err
	}
	_, err := p.Producer.Produce(ctx, tx, PaymentOverdue(e), outbox.Delay(24*time.Hour)) // the timeout
	return err
}

func (p *ProcessManager) paid(ctx context.Context, tx bun.Tx, e OrderPaid) error {
	return p.move(ctx, tx, e.OrderID, "paid", ShipGoods(e))
}

func (p *ProcessManager) overdue(ctx context.Context, tx bun.Tx, e PaymentOverdue) error {
	return p.move(ctx, tx, e.OrderID, "cancelled", ReleaseGoods(e)) // compensation
}

// move changes the state only if it is reserving.
func (p *ProcessManager) move(ctx context.Context, tx bun.Tx, order, state string, next bus.Payload) error {
	row := Fulfilment{OrderID: order}
	if err := tx.NewSelect().Model(&row).WherePK().Scan(ctx); err != nil {
		return fmt.Errorf("fulfilment of %s: %w", order, err) // sql.ErrNoRows is retried
	}
	result, err := tx.NewUpdate().Model((*Fulfilment)(nil)).Set("state = ?", state).
		Where("order_id = ? AND state = 'reserving'", order).Exec(ctx)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return err
	}
	_, err = p.Producer.Produce(ctx, tx, next)
	return err
}

// end
