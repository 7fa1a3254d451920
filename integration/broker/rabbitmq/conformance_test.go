//go:build unix

package rabbitmq_test

import (
	"crypto/rand"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/asyncmonolith/asyncmonolith-go/broker/brokertest"
	"github.com/asyncmonolith/asyncmonolith-go/broker/rabbitmq"
	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

const timeout = 3 * time.Second

// TestConformance runs the suite on what scripts/with-rabbitmq.sh has started. On a cluster the queues
// are quorum queues, and what cuts connections is that a node is killed.
func TestConformance(t *testing.T) {
	nodes := brokers.FindRabbitMQ(t)
	// All queues are made before the first broker is killed: RabbitMQ 3.10 does not bring back a
	// quorum queue that was made within moments of a crash of all nodes.
	var queues []string
	for range 50 {
		queues = append(queues, rand.Text())
		declare(t, nodes, queues[len(queues)-1])
	}
	brokertest.Run(t, func(t *testing.T) brokertest.Setup {
		queue := queues[0]
		queues = queues[1:]
		setup := brokertest.Setup{
			Publisher:   newPublisher(t, nodes),
			Subscriber:  newSubscriber(t, nodes, queue),
			Destination: queue, Missing: "nowhere-" + queue, TooLarge: 1<<20 + 1,
			NoSubscription: newSubscriber(t, nodes, "nowhere-"+queue),
			Timeout:        timeout, MaxWait: time.Minute,
			Disconnect: nodes.Cut, Stop: nodes.Kill, Freeze: nodes.Pause, Start: nodes.Start,
		}
		if len(nodes.URLs) > 1 {
			killed := 0
			setup.Disconnect = func() error { killed++; return nodes.Restart(killed) }
		}
		return setup
	})
}

func newPublisher(t testing.TB, nodes *brokers.RabbitMQ) *rabbitmq.Publisher {
	t.Helper()
	p := testapp.Must[*rabbitmq.Publisher](t)(rabbitmq.NewPublisher(rabbitmq.PublisherConfig{URLs: nodes.URLs, Timeout: timeout}))
	t.Cleanup(p.Close)
	return p
}

func newSubscriber(t testing.TB, nodes *brokers.RabbitMQ, queue string) *rabbitmq.Subscriber {
	t.Helper()
	s := testapp.Must[*rabbitmq.Subscriber](t)(rabbitmq.NewSubscriber(rabbitmq.SubscriberConfig{URLs: nodes.URLs, Queue: queue}))
	return s
}

// declare makes a durable queue: a quorum queue where there are several nodes.
func declare(t testing.TB, nodes *brokers.RabbitMQ, queue string) {
	t.Helper()
	arguments := amqp.Table{}
	if len(nodes.URLs) > 1 {
		arguments["x-queue-type"] = "quorum"
	}
	deadline := time.Now().Add(time.Minute)
	for {
		err := try(nodes.URLs[0], func(channel *amqp.Channel) error {
			_, err := channel.QueueDeclare(queue, true, false, false, false, arguments)
			return err
		})
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		<-time.After(100 * time.Millisecond)
	}
}

// try does something over a connection of its own.
func try(url string, do func(channel *amqp.Channel) error) error {
	conn, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	channel, err := conn.Channel()
	if err != nil {
		return err
	}
	return do(channel)
}
