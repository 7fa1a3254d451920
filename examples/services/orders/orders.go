// Package orders is the service that takes orders: each is a row and a message, in one
// transaction, and a relay publishes the messages. It is wired by hand; package shipping has fx do that.
package orders

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	amnats "github.com/asyncmonolith/asyncmonolith-go/broker/nats"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/examples/services/service"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// Total is how many orders there will be.
const Total = 300

// every is how often a customer comes.
const every = 10 * time.Millisecond

// Order is a table of this service.
type Order struct {
	bun.BaseModel `bun:"table:orders"`

	ID string `bun:"id,pk"`
}

// OrderPlaced is what other services are told.
type OrderPlaced struct {
	OrderID string `json:"order_id"`
}

// PayloadType is its name here, and the type of the event that others receive.
func (OrderPlaced) PayloadType() string { return "order.placed" }

// parts are what the service consists of.
type parts struct {
	db        *bun.DB
	producer  *outbox.Producer
	processor *outbox.Processor
	tracer    trace.Tracer
}

// Run takes orders, and publishes them, until ctx ends.
func Run(ctx context.Context, s service.Settings) (err error) {
	// snippet: connect
	nc, err := nats.Connect(s.Broker, amnats.Options()...)
	if err != nil {
		return err
	}
	defer nc.Close()
	// end
	db, err := service.Open(s.Database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	p, err := wire(ctx, db, nc, service.Tracers(s), service.Logger(s))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error)
	go func() { defer stop(); ended <- p.processor.Run(ctx) }()
	if err = p.takeOrders(ctx); err != nil {
		stop()
	}
	return errors.Join(err, <-ended)
}

// wire makes the tables, and the parts.
func wire(ctx context.Context, db *bun.DB, nc *nats.Conn, tracers trace.TracerProvider, logger *slog.Logger) (*parts, error) {
	telemetry, err := amotel.NewTelemetry(amotel.TelemetryConfig{TracerProvider: tracers})
	if err != nil {
		return nil, err
	}
	// snippet: publisher
	publisher, err := amnats.NewPublisher(nc, amnats.PublisherConfig{})
	if err != nil {
		return nil, err
	}
	if err := publisher.Check(ctx, "orders.placed"); err != nil { // is there a stream for it?
		return nil, err
	}
	registry, err := bus.NewRegistry( // with the service's other consumers
		relay.NewForwarder("to-broker", publisher, relay.Config{
			Source: "/orders",
			Routes: []relay.Route{relay.To[OrderPlaced]("orders.placed")},
		}),
	)
	// end
	if err != nil {
		return nil, err
	}
	if err := outbox.Migrate(ctx, db, registry.Tables()); err != nil {
		return nil, err
	}
	if _, err := db.NewCreateTable().Model((*Order)(nil)).IfNotExists().Exec(ctx); err != nil {
		return nil, err
	}
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{Telemetry: telemetry.Produce()})
	if err != nil {
		return nil, err
	}
	processor, err := outbox.NewProcessor(db, registry, outbox.ProcessorConfig{
		Middleware: middleware.Default(middleware.Options{Telemetry: telemetry.Consume(), Logger: logger}),
		Logger:     logger,
	})
	return &parts{db, producer, processor, tracers.Tracer("orders")}, err
}

// takeOrders has one customer after the other place an order.
func (p *parts) takeOrders(ctx context.Context) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for n := 1; n <= Total; n++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		if err := p.place(ctx, fmt.Sprintf("o-%03d", n)); err != nil {
			return err
		}
		service.Tell(service.Event{Placed: n})
	}
	return nil
}

// place writes an order and its message: both are committed, or neither is.
func (p *parts) place(ctx context.Context, id string) error {
	ctx, span := p.tracer.Start(ctx, "place order", trace.WithAttributes(attribute.String("order", id)))
	defer span.End()
	return p.producer.RunInTx(ctx, p.db, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(&Order{ID: id}).Exec(ctx); err != nil {
			return err
		}
		_, err := p.producer.Produce(ctx, tx, OrderPlaced{OrderID: id})
		return err
	})
}
