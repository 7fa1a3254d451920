package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/broker/rabbitmq"
)

// A publisher for relay.NewForwarder, and a subscriber for inbox.NewReceiver. Without a broker
// messages stay in the database.
func Example() {
	urls := []string{"amqp://user:password@127.0.0.1:1/vhost"}
	publisher, err := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{URLs: urls, Exchange: "orders", Timeout: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer publisher.Close()
	subscriber, err := rabbitmq.NewSubscriber(rabbitmq.SubscriberConfig{URLs: urls, Queue: "shipping"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%T %T\n", publisher, subscriber)
	errs := publisher.Publish(context.Background(), []broker.Record{{Destination: "order.placed", ID: "1"}})
	fmt.Println(errors.Is(errs[0], broker.ErrUnavailable))
	// Output:
	// *rabbitmq.Publisher *rabbitmq.Subscriber
	// true
}
