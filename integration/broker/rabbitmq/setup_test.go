//go:build unix

package rabbitmq_test

import (
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/asyncmonolith/asyncmonolith-go/broker/rabbitmq"
	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

// setUp makes the exchange and the queue that docs/brokers/rabbitmq.md shows.
func setUp(channel *amqp.Channel) error {
	// snippet: rabbitmq
	if err := channel.ExchangeDeclare("orders", amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
		return err
	}
	arguments := amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum} // three nodes survive the loss of one
	// RabbitMQ 4.0 and newer: arguments["x-delivery-limit"] = -1
	if _, err := channel.QueueDeclare("shipping", true, false, false, false, arguments); err != nil {
		return err
	}
	return channel.QueueBind("shipping", "orders.#", "orders", false, nil)
	// end
}

// TestSetUp publishes to what the guide has.
func TestSetUp(t *testing.T) {
	nodes := brokers.FindRabbitMQ(t)
	testapp.OK(t, try(nodes.URLs[0], setUp))
	p, err := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{URLs: nodes.URLs, Exchange: "orders", Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if errs := p.Publish(t.Context(), []broker.Record{{Destination: "orders.placed", Body: []byte("{}")}}); len(errs) > 0 && errs[0] != nil {
		t.Error(errs[0])
	}
	err = try(nodes.URLs[0], func(channel *amqp.Channel) error {
		n, err := channel.QueueDelete("shipping", false, false, false)
		if err == nil && n != 1 {
			t.Errorf("the queue has %d records, want 1", n)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
