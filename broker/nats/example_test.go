package nats_test

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	amnats "github.com/asyncmonolith/asyncmonolith-go/broker/nats"
)

// A publisher for relay.NewForwarder, and a subscriber for inbox.NewReceiver.
func Example() {
	nc, err := nats.Connect("nats://localhost:4222", amnats.Options()...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nc.Close()
	var (
		publisher  broker.Publisher
		subscriber broker.Subscriber
	)
	if publisher, err = amnats.NewPublisher(nc, amnats.PublisherConfig{}); err != nil {
		fmt.Println(err)
		return
	}
	if subscriber, err = amnats.NewSubscriber(nc, amnats.SubscriberConfig{Stream: "ORDERS", Consumer: "shipping"}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(publisher, subscriber)
}
