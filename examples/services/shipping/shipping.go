// Package shipping is the service that ships what was ordered elsewhere: a receiver takes the
// records of the broker over, and a consumer writes a shipment for each. It is wired with fx;
// package orders does that by hand.
package shipping

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"

	amnats "github.com/asyncmonolith/asyncmonolith-go/broker/nats"
	"github.com/asyncmonolith/asyncmonolith-go/examples/services/service"
	"github.com/asyncmonolith/asyncmonolith-go/fxmodule"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// The stream of the broker, and this service's consumer of it, which exist already.
const (
	Stream   = "ORDERS"
	Consumer = "shipping"
)

// Batch is how many records are taken over at once, at most.
const Batch = 16

// Shipment is a table of this service. An order may have several, so that one too many would show.
type Shipment struct {
	bun.BaseModel `bun:"table:shipments"`

	ID      int64  `bun:"id,pk,autoincrement"`
	OrderID string `bun:"order_id"`
}

// OrderPlaced is what this service knows of an order: a type of its own, under the name of the
// event that the other service publishes.
type OrderPlaced struct {
	OrderID string `json:"order_id"`
}

// PayloadType is the type of the event.
func (OrderPlaced) PayloadType() string { return "order.placed" }

// Run receives and ships until ctx ends.
func Run(ctx context.Context, s service.Settings) error {
	// snippet: shipping
	app := fx.New(
		fx.NopLogger,
		fx.Supply(s, outbox.ProcessorConfig{LeaseDuration: 2 * time.Second}), // how long a killed process's messages wait
		fx.Provide(newDB, newConn, newTracers, service.Logger),
		fxmodule.Module,
		fxmodule.Migrate(),
		fxmodule.Consumers(outbox.ConsumeTx("ship", ship)),
		fxmodule.Receivers(newReceiver),
	)
	// end
	if err := app.Start(ctx); err != nil {
		return err
	}
	var failed error
	select {
	case <-ctx.Done():
	case <-app.Wait(): // Stop says why
		failed = errors.New("shipping has shut down by itself")
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), app.StopTimeout())
	defer cancel()
	return errors.Join(failed, app.Stop(stopping))
}

// newReceiver takes orders from the broker.
func newReceiver(nc *nats.Conn, s service.Settings) (inbox.Receiver, error) {
	subscriber, err := amnats.NewSubscriber(nc, amnats.SubscriberConfig{Stream: Stream, Consumer: Consumer, Batch: Batch})
	if err != nil {
		return inbox.Receiver{}, err
	}
	return inbox.NewReceiver("from-orders", heldAt(s.HoldAt, subscriber), inbox.Accept[OrderPlaced]()), nil
}

// ship writes a shipment in the transaction that removes the message, so exactly once.
func ship(ctx context.Context, tx bun.Tx, o OrderPlaced) error {
	_, err := tx.NewInsert().Model(&Shipment{OrderID: o.OrderID}).Exec(ctx)
	return err
}

// newConn connects to the broker. The receiver is made after it, and so is stopped before it is closed.
func newConn(lifecycle fx.Lifecycle, s service.Settings) (*nats.Conn, error) {
	nc, err := nats.Connect(s.Broker, amnats.Options()...)
	if err == nil {
		lifecycle.Append(fx.StopHook(nc.Close))
	}
	return nc, err
}

func newDB(lifecycle fx.Lifecycle, s service.Settings) (*bun.DB, error) {
	db, err := service.Open(s.Database)
	if err != nil {
		return nil, err
	}
	lifecycle.Append(fx.StartStopHook(func(ctx context.Context) error {
		_, err := db.NewCreateTable().Model((*Shipment)(nil)).IfNotExists().Exec(ctx)
		return err
	}, db.Close))
	return db, nil
}

// newTracers returns the interface: fx matches by the exact type.
func newTracers(s service.Settings) trace.TracerProvider { return service.Tracers(s) }
