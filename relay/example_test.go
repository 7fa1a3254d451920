package relay_test

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

type OrderPlaced struct {
	OrderID string `json:"order_id"`
}

func (OrderPlaced) PayloadType() string { return "order.placed" }

// A forwarder is a consumer: register it with the others, and run an outbox.Processor.
func ExampleNewForwarder() {
	var (
		db        *bun.DB          // opened by the application
		registry  *bus.Registry    // of the application
		publisher broker.Publisher // made by an adapter, such as package broker/nats
	)
	registry, err := bus.NewRegistry(relay.NewForwarder("to-broker", publisher, relay.Config{
		Source: "/shop/orders",
		Routes: []relay.Route{relay.To[OrderPlaced]("orders.placed")},
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	processor, err := outbox.NewProcessor(db, registry, outbox.ProcessorConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(processor.Run(context.Background()))
}

// NewRegistry reports all mistakes of a forwarder.
func ExampleNewForwarder_mistakes() {
	var publisher broker.Publisher
	_, err := bus.NewRegistry(relay.NewForwarder("to-broker", publisher, relay.Config{}))
	fmt.Println(err)
	// Output:
	// bus: consumer "to-broker": no payload type is given
	// bus: consumer "to-broker": relay: the publisher is nil
	// bus: consumer "to-broker": relay: Config.Source "": a URI reference is allowed
	// bus: consumer "to-broker": relay: Config.Routes is empty: add a relay.To
}

// A log forwarder keeps the order of the event log.
func ExampleNewLogForwarder() {
	var (
		db        *bun.DB          // opened by the application
		registry  *bus.Registry    // of the application
		log       *eventlog.Log    // of the application
		publisher broker.Publisher // made by an adapter; one that is a broker.Appender publishes each event once
	)
	forwarder := relay.NewLogForwarder("orders", publisher, relay.LogConfig{
		Source: "/shop/orders",
		Routes: []relay.Route{relay.To[OrderPlaced]("orders")},
		Shards: 4,
	})
	runner, err := relay.NewRunner(db, registry, relay.RunnerConfig{Log: log}, forwarder)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(runner.Run(context.Background()))
}
