package guide

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"

	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// OrderAccepted is what other services are told of an order.
type OrderAccepted struct {
	Number string `json:"number"`
}

// PayloadType implements bus.Payload.
func (OrderAccepted) PayloadType() string { return "shop.order-accepted" }

// ToServices publishes what other services are to know.
func ToServices(publisher broker.Publisher) bus.Consumer {
	// snippet: publish
	public := relay.MapPayload(func(o OrderPlaced) (OrderAccepted, error) { return OrderAccepted{Number: o.OrderID}, nil })
	customer := relay.DestinationFunc(func(_ *bus.Message, a AddressChanged) (string, error) { return "addresses." + a.CustomerID, nil })
	return relay.NewForwarder("to-broker", publisher, relay.Config{
		Source: "/shop/orders",
		Routes: []relay.Route{
			relay.To[OrderPlaced]("orders.placed", public),
			relay.To[AddressChanged]("", customer),
		},
	})
	// end
}

// Shipping ships what the shop takes orders for, until ctx ends.
func Shipping(ctx context.Context, db *bun.DB, subscriber broker.Subscriber, ship func(context.Context, bun.Tx, OrderPlaced) error) error {
	// snippet: shipping
	receiver := inbox.NewReceiver("from-shop", subscriber, inbox.Accept[OrderPlaced]())
	registry, err := bus.NewRegistry(outbox.ConsumeTx("ship", ship), receiver.Consumer())
	if err != nil {
		return err
	}
	if err := outbox.Migrate(ctx, db, registry.Tables()); err != nil {
		return err
	}
	// end
	return runServices(ctx, db, registry, receiver)
}

// FromServices takes over what arrives and runs the consumers of it, until ctx ends.
func FromServices(ctx context.Context, db *bun.DB, subscriber broker.Subscriber, consumers []bus.Consumer) error {
	receiver := inbox.NewReceiver("from-shop", subscriber, inbox.Accept[OrderAccepted]("shop.order-placed")) // its former name
	registry, err := bus.NewRegistry(append(consumers, receiver.Consumer())...)
	if err != nil {
		return err
	}
	return runServices(ctx, db, registry, receiver)
}

// runServices runs the processor of the consumers, and beside it what arrives.
func runServices(ctx context.Context, db *bun.DB, registry *bus.Registry, receiver inbox.Receiver) error {
	telemetry, err := amotel.NewTelemetry(amotel.TelemetryConfig{})
	if err != nil {
		return err
	}
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{Telemetry: telemetry.Produce()})
	if err != nil {
		return err
	}
	processor, err := outbox.NewProcessor(db, registry, outbox.ProcessorConfig{
		Middleware: middleware.Default(middleware.Options{Telemetry: telemetry.Consume()}),
	})
	if err != nil {
		return err
	}
	runner, err := inbox.NewRunner(db, registry, producer, inbox.RunnerConfig{Telemetry: telemetry.Receive()}, receiver)
	if err != nil {
		return err
	}
	parts := []func(context.Context) error{
		processor.Run, // runs the consumers, those that publish among them
		runner.Run,    // takes over what arrives; not needed where nothing does
		func(ctx context.Context) error { return telemetry.Observe(ctx, processor, 15*time.Second) },
		func(ctx context.Context) error { return telemetry.Observe(ctx, runner, 15*time.Second) },
	}
	ctx, stop := context.WithCancel(ctx) // when one ends, so do the others
	defer stop()
	ended := make(chan error)
	for _, part := range parts {
		go func() { defer stop(); ended <- part(ctx) }()
	}
	for range parts {
		err = errors.Join(err, <-ended)
	}
	return err
}

// LogToServices publishes the event log in its order.
func LogToServices(publisher broker.Publisher) relay.LogForwarder {
	// snippet: log
	return relay.NewLogForwarder("stock", publisher, relay.LogConfig{
		Source: "/warehouse",
		Routes: []relay.Route{relay.To[Received](""), relay.To[Sent]("")}, // an Appender needs no destinations
		Shards: 4,
	})
	// end
}

// LogOfWarehouse takes the log of the warehouse into that of this service.
func LogOfWarehouse(subscriber broker.Subscriber) inbox.Receiver {
	// snippet: into-log
	receiver := inbox.NewReceiver("from-warehouse", subscriber, inbox.AppendToLog("warehouse"),
		inbox.Accept[Received](), inbox.Accept[Sent]())
	// end
	return receiver
}

// FromElsewhere takes what is in a format of somebody's own.
func FromElsewhere(subscriber broker.Subscriber) inbox.Receiver {
	// snippet: map
	receiver := inbox.NewReceiver("from-billing", subscriber, inbox.Accept[OrderAccepted](),
		inbox.MapRecord(func(r broker.Record) (broker.Record, error) {
			var invoice struct{ Number string }
			if err := json.Unmarshal(r.Body, &invoice); err != nil || invoice.Number == "" {
				return r, errors.New("not an invoice") // poisoned as receive:from-billing
			}
			r.Attributes = map[string]string{
				"specversion": "1.0", "source": "/billing", "type": "shop.order-accepted",
				"id": invoice.Number, // the same for each delivery
			}
			r.ContentType = "application/json"
			return r, nil
		}))
	// end
	return receiver
}

// MovedToPayments is what takes the place of the consumer "charge-card" that has moved.
func MovedToPayments(publisher broker.Publisher) bus.Consumer {
	// snippet: move
	return relay.NewForwarder("to-payments", publisher, relay.Config{
		Source:     "/shop/orders",
		Routes:     []relay.Route{relay.To[OrderPlaced]("payments.order-placed")},
		Recipients: []string{"charge-card"}, // the only consumer that gets the message
	}, bus.Aliases("charge-card"))
	// end
}
