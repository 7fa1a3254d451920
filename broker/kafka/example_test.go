package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/broker/kafka"
)

// A publisher for relay.NewForwarder, and a subscriber for inbox.NewReceiver. Without a broker
// messages stay in the database.
func Example() {
	brokers := []string{"127.0.0.1:1"}
	publisher, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: brokers, Timeout: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer publisher.Close()
	subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{Brokers: brokers, Group: "shipping", Topics: []string{"orders"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%T %T\n", publisher, subscriber)
	errs := publisher.Publish(context.Background(), []broker.Record{{Destination: "orders", ID: "1"}})
	fmt.Println(errors.Is(errs[0], broker.ErrUnavailable))
	// Output:
	// *kafka.Publisher *kafka.Subscriber
	// true
}
