package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// OrderPlaced is a payload.
type OrderPlaced struct {
	OrderID string `json:"order_id"`
}

func (OrderPlaced) PayloadType() string { return "order.placed" }

// Write rows of the application and messages together: both commit or neither.
func ExampleProducer_RunInTx() {
	var (
		ctx      = context.Background()
		db       *bun.DB // opened by the application
		producer *outbox.Producer
	)
	err := producer.RunInTx(ctx, db, func(ctx context.Context, tx bun.Tx) error {
		// insert the order through tx, and then:
		receipt, err := producer.Produce(ctx, tx, OrderPlaced{OrderID: "o-1"},
			outbox.InsertID("order:o-1"), outbox.Delay(time.Minute), outbox.Header("tenant", "acme"))
		fmt.Println(receipt.MessageID, receipt.Enqueued, err)
		return err
	})
	fmt.Println(err)
}

// What goes wrong because of the caller can be told apart with errors.Is.
func ExampleProducer_Produce_errors() {
	registry, err := bus.NewRegistry(bus.Consume("send-receipt", func(context.Context, OrderPlaced) error { return nil }))
	if err != nil {
		fmt.Println(err)
		return
	}
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	var db *bun.DB // not needed to find these mistakes
	_, err = producer.Produce(context.Background(), db, &OrderPlaced{})
	fmt.Println(errors.Is(err, bus.ErrInvalidPayload), err)
	_, err = producer.Produce(context.Background(), db, OrderPlaced{}, outbox.InsertID(""))
	fmt.Println(errors.Is(err, bus.ErrInvalidOption), err)
	// Output:
	// true outbox: produce: payload not allowed: it is a *outbox_test.OrderPlaced, pass the struct itself
	// true outbox: produce: payload "order.placed": not allowed: the insert id is empty
}

// What a transactional consumer writes through tx commits together with the
// removal of its message, so it happens exactly once.
func ExampleConsumeTx() {
	registry, err := bus.NewRegistry(
		outbox.ConsumeTx("count-order", func(ctx context.Context, tx bun.Tx, e OrderPlaced) error {
			_, err := tx.NewUpdate().Table("totals").Set("orders = orders + 1").Where("TRUE").Exec(ctx)
			return err
		}, bus.Timeout(2*time.Second)),
	)
	fmt.Println(len(registry.Consumers()), err)
	// Output: 1 <nil>
}

// Short transactional consumers get through many times as many messages when up to
// 50 of them share a transaction. Each still succeeds or fails alone.
func ExampleGroupCommit() {
	registry, err := bus.NewRegistry(
		outbox.ConsumeTx("count-order", func(ctx context.Context, tx bun.Tx, e OrderPlaced) error {
			_, err := tx.NewUpdate().Table("totals").Set("orders = orders + 1").Where("TRUE").Exec(ctx)
			return err
		}, outbox.GroupCommit(50)),
	)
	fmt.Println(len(registry.Consumers()), err)
	// Output: 1 <nil>
}

// Run blocks until its context ends, and drains.
func ExampleProcessor_Run() {
	var (
		db       *bun.DB // opened by the application
		registry *bus.Registry
	)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := outbox.Migrate(ctx, db, registry.Tables()); err != nil {
		fmt.Println(err)
		return
	}
	processor, err := outbox.NewProcessor(db, registry, outbox.ProcessorConfig{Concurrency: 16})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = processor.Run(ctx)
	if drain, ok := errors.AsType[*bus.DrainError](err); ok {
		fmt.Println("still running:", drain.Consumers)
	}
}
