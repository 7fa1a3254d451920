package nats_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	amnats "github.com/asyncmonolith/asyncmonolith-go/broker/nats"
)

// A publisher for relay.NewForwarder, and a subscriber for inbox.NewReceiver. Without a server the
// connection keeps trying, and messages stay in the database.
func Example() {
	nc, err := nats.Connect("nats://127.0.0.1:1", amnats.Options()...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nc.Close()
	publisher, err := amnats.NewPublisher(nc, amnats.PublisherConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	subscriber, err := amnats.NewSubscriber(nc, amnats.SubscriberConfig{Stream: "ORDERS", Consumer: "shipping"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%T %T\n", publisher, subscriber)
	errs := publisher.Publish(context.Background(), []broker.Record{{Destination: "orders.placed", ID: "1"}})
	fmt.Println(errors.Is(errs[0], broker.ErrUnavailable))
	// Output:
	// *nats.Publisher *nats.Subscriber
	// true
}
