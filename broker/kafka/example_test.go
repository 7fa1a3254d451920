package kafka_test

import (
	"fmt"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/broker/kafka"
)

// A publisher for relay.NewForwarder, and a subscriber for inbox.NewReceiver.
func Example() {
	brokers := []string{"kafka-1:9092", "kafka-2:9092"}
	publisher, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: brokers})
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
	fmt.Println(broker.Publisher(publisher), broker.Subscriber(subscriber))
}
