package guide

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
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
func ToServices(publisher relay.Publisher) bus.Consumer {
	// snippet: publish
	return relay.Publish("to-broker", publisher, relay.Source("/shop/orders"),
		relay.Route[OrderPlaced]("orders.placed",
			relay.As(func(o OrderPlaced) (OrderAccepted, error) { return OrderAccepted{Number: o.OrderID}, nil })),
		relay.Route[AddressChanged]("", relay.DestinationOf(func(_ *bus.Message, a AddressChanged) (string, error) {
			return "addresses." + a.CustomerID, nil
		})))
	// end
}

// FromServices runs a receiver beside consumers, until ctx ends.
func FromServices(ctx context.Context, db *bun.DB, subscriber relay.Subscriber, consumers []bus.Consumer) error {
	// snippet: receive
	receiver := relay.Receive("from-shop", subscriber, relay.Accept[OrderAccepted]("shop.order-placed")) // its former name
	registry, err := bus.NewRegistry(append(consumers, receiver.Consumer())...)
	// end
	if err != nil {
		return err
	}
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{})
	if err != nil {
		return err
	}
	// snippet: runner
	runner, err := relay.NewRunner(db, registry, producer, relay.RunnerConfig{}, receiver)
	// end
	if err != nil {
		return err
	}
	return runner.Run(ctx)
}

// LogToServices publishes the event log in its order.
func LogToServices(publisher relay.Publisher) relay.LogRelay {
	// snippet: log
	return relay.Log("stock", publisher, relay.Source("/warehouse"), relay.Shards(4),
		relay.Events[Received](), relay.Events[Sent]()) // relay.Route, for a publisher that is no Appender
	// end
}

// LogOfWarehouse takes the log of the warehouse into that of this service.
func LogOfWarehouse(subscriber relay.Subscriber) relay.Receiver {
	// snippet: into-log
	receiver := relay.Receive("from-warehouse", subscriber, relay.IntoLog("warehouse"),
		relay.Accept[Received](), relay.Accept[Sent]())
	// end
	return receiver
}
