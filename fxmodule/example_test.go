package fxmodule_test

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"
	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/fxmodule"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// OrderPlaced and OrderCharged are payloads.
type (
	OrderPlaced  struct{ OrderID string }
	OrderCharged struct{ OrderID string }
)

func (OrderPlaced) PayloadType() string  { return "order.placed" }
func (OrderCharged) PayloadType() string { return "order.charged" }

// Shop has the consumers, of which one produces.
type Shop struct {
	db       *bun.DB
	producer *outbox.Producer
}

func NewShop(db *bun.DB, producer *outbox.Producer) *Shop { return &Shop{db: db, producer: producer} }

func NewConsumers(s *Shop) []bus.Consumer {
	return []bus.Consumer{bus.Consume("charge-card", s.ChargeCard), bus.Consume("ship", s.Ship)}
}

func (s *Shop) ChargeCard(ctx context.Context, e OrderPlaced) error {
	_, err := s.producer.Produce(ctx, s.db, OrderCharged(e), outbox.InsertID("charged:"+e.OrderID))
	return err
}

func (s *Shop) Ship(context.Context, OrderCharged) error { return nil }

// OpenDB opens the application's database; its hook closes it.
func OpenDB(lifecycle fx.Lifecycle) (*bun.DB, error) {
	var db *bun.DB // by bun.NewDB
	lifecycle.Append(fx.StopHook(func() error { return db.Close() }))
	return db, nil
}

// Serve is listed after Module: it starts after the processors, and stops before.
func Serve(lifecycle fx.Lifecycle, producer *outbox.Producer) {
	lifecycle.Append(fx.StartStopHook(func() { /* listen */ }, func() { /* shut down */ }))
}

// fx.ValidateApp checks the wiring without constructing anything.
func ExampleModule() {
	options := fx.Options(
		fx.StopTimeout(30*time.Second),
		fx.Provide(OpenDB, NewShop),
		fxmodule.Module,
		fxmodule.Migrate(),
		fxmodule.Consumers(NewConsumers),
		fx.Supply(outbox.ProcessorConfig{Concurrency: 16, DrainTimeout: 20 * time.Second}),
		fx.Invoke(Serve),
	)
	fmt.Println(fx.ValidateApp(options))
	// Output: <nil>
}

// Consumers and projections can take the event log in their constructors.
func ExampleEventLog() {
	options := fx.Options(
		fx.Provide(OpenDB),
		fxmodule.Module,
		fxmodule.Migrate(),
		fxmodule.EventLog(eventlog.Event[OrderPlaced](), eventlog.Event[OrderCharged]()),
		fxmodule.Consumers(func(log *eventlog.Log) bus.Consumer {
			return outbox.ConsumeTx("charge-card", func(ctx context.Context, tx bun.Tx, e OrderPlaced) error {
				_, err := log.Append(ctx, tx, "order-"+e.OrderID, eventlog.StreamExists, OrderCharged(e))
				return err
			})
		}),
		fxmodule.Projections(projection.Projection{
			Name: "orders",
			On:   []projection.Handler{projection.On(func(context.Context, bun.Tx, OrderPlaced) error { return nil })},
		}),
		fx.Invoke(func(*eventlog.Log, *projection.Runner) {}), // append, and wait for the projection
	)
	fmt.Println(fx.ValidateApp(options))
	// Output: <nil>
}
