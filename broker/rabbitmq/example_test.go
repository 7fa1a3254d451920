package rabbitmq_test

import (
	"fmt"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/broker/rabbitmq"
)

// A publisher for relay.NewForwarder, and a subscriber for inbox.NewReceiver.
func Example() {
	urls := []string{"amqp://user:password@rabbit-1:5672/vhost", "amqp://user:password@rabbit-2:5672/vhost"}
	publisher, err := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{URLs: urls, Exchange: "orders"})
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
	fmt.Println(broker.Publisher(publisher), broker.Subscriber(subscriber))
}
