package inbox_test

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

type OrderPlaced struct {
	OrderID string `json:"order_id"`
}

func (OrderPlaced) PayloadType() string { return "order.placed" }

// Records become messages of the registered consumers, each record once. Run an outbox.Processor of
// the same registry beside the receiver.
func ExampleNewReceiver() {
	var (
		ctx        = context.Background()
		db         *bun.DB           // opened by the application
		subscriber broker.Subscriber // made by an adapter, such as package broker/nats
	)
	ship := func(ctx context.Context, tx bun.Tx, order OrderPlaced) error {
		_, err := tx.NewRaw("INSERT INTO shipments (order_id) VALUES (?)", order.OrderID).Exec(ctx)
		return err
	}
	receiver := inbox.NewReceiver("from-shop", subscriber, inbox.Accept[OrderPlaced]())
	registry, err := bus.NewRegistry(outbox.ConsumeTx("ship", ship), receiver.Consumer())
	if err != nil {
		fmt.Println(err)
		return
	}
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	runner, err := inbox.NewRunner(db, registry, producer, inbox.RunnerConfig{}, receiver)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(runner.Run(ctx))
}

// MapRecord reads records that are not CloudEvents, such as those of a program in another language.
func ExampleMapRecord() {
	var subscriber broker.Subscriber // made by an adapter
	mapped := func(r broker.Record) (broker.Record, error) {
		r.ContentType = "application/json"
		r.Attributes = map[string]string{
			"specversion": "1.0", "source": "/legacy", "id": r.Headers["legacy-id"], "type": OrderPlaced{}.PayloadType(),
		}
		return r, nil
	}
	receiver := inbox.NewReceiver("from-legacy", subscriber, inbox.Accept[OrderPlaced](), inbox.MapRecord(mapped))
	ship := func(context.Context, OrderPlaced) error { return nil }
	registry, err := bus.NewRegistry(bus.Consume("ship", ship), receiver.Consumer())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range registry.Consumers() {
		fmt.Println(c.Name())
	}
	// Output:
	// receive:from-legacy
	// ship
}
