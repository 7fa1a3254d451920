package guide

import (
	"context"

	"github.com/uptrace/bun"
	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/fxmodule"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Parcels and Invoices stand for modules of a modular monolith: each has its own table, and none calls another.
var (
	Parcels  = parcels()                                             // immutable
	Invoices = fx.Module("invoices", fxmodule.Consumers(newInvoice)) // immutable
)

func parcels() fx.Option {
	return fx.Module("parcels", fxmodule.Consumers(func(producer *outbox.Producer) bus.Consumer {
		return outbox.ConsumeTx("parcels.send", func(ctx context.Context, tx bun.Tx, e OrderPaid) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO parcels (order_id) VALUES (?)", e.OrderID); err != nil {
				return err
			}
			_, err := producer.Produce(ctx, tx, ShipGoods(e)) // a payload that other modules consume
			return err
		})
	}))
}

func newInvoice() bus.Consumer {
	return outbox.ConsumeTx("invoices.write", func(ctx context.Context, tx bun.Tx, e ShipGoods) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO invoices (order_id) VALUES (?)", e.OrderID)
		return err
	})
}
