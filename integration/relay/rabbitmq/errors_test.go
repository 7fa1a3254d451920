//go:build unix

package rabbitmq_test

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
	"github.com/asyncmonolith/asyncmonolith-go/relay/rabbitmq"
)

// TestFatesOfRecords: what becomes of records has its class, and never takes good ones with it.
func TestFatesOfRecords(t *testing.T) {
	if !*clusters {
		return
	}
	nodes := brokers.FindRabbitMQ(t)
	full := rand.Text()
	err := try(nodes.URLs[0], func(channel *amqp.Channel) error {
		_, err := channel.QueueDeclare(full, true, false, false, false, amqp.Table{"x-max-length": int64(1), "x-overflow": "reject-publish"})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	publisher := newPublisher(t, nodes)
	fill := make([]relay.Record, 50)
	for i := range fill {
		fill[i] = relay.Record{Destination: full, ID: rand.Text()}
	}
	_ = publisher.Publish(t.Context(), fill) // as many as it takes
	if err := publisher.Publish(t.Context(), fill[:1])[0]; !errors.Is(err, relay.ErrNoDestination) {
		t.Errorf("a queue that is full: got %v, want ErrNoDestination", err)
	}
	if err := try(nodes.URLs[0], func(channel *amqp.Channel) error { _, err := channel.QueuePurge(full, false); return err }); err != nil {
		t.Fatal(err)
	}
	if err := publisher.Publish(t.Context(), fill[:1])[0]; err != nil {
		t.Errorf("a queue that was emptied: got %v, want it published", err)
	}

	lost, err := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{URLs: nodes.URLs, Exchange: "nowhere"})
	if err != nil {
		t.Fatal(err)
	}
	defer lost.Close()
	for range 2 {
		for i, err := range lost.Publish(t.Context(), fill[:3]) {
			if !errors.Is(err, relay.ErrNoDestination) {
				t.Errorf("record %d to an exchange that does not exist: got %v, want ErrNoDestination", i, err)
			}
		}
	}
}

func TestWrongCredentialsAreSaid(t *testing.T) {
	if !*clusters {
		return
	}
	nodes := brokers.FindRabbitMQ(t)
	wrong := strings.Replace(nodes.URLs[0], "guest:guest", "guest:secret", 1)
	s, err := rabbitmq.NewSubscriber(rabbitmq.SubscriberConfig{URLs: []string{wrong}, Queue: "any"})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Subscribe(t.Context(), func(context.Context, []relay.Record) error { return nil })
	if !errors.Is(err, amqp.ErrCredentials) || strings.Contains(err.Error(), "secret") {
		t.Errorf("Subscribe: got %v, want the credentials blamed, and not told", err)
	}
	p, err := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{URLs: []string{wrong}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	err = p.Publish(t.Context(), make([]relay.Record, 1))[0]
	if !errors.Is(err, relay.ErrUnavailable) || !errors.Is(err, amqp.ErrCredentials) || strings.Contains(err.Error(), "secret") {
		t.Errorf("Publish: got %v, want ErrUnavailable and the credentials blamed, and not told", err)
	}
}

// TestANodeThatDoesNotAnswerLeavesTimeForTheOthers: it takes connections and says nothing.
func TestANodeThatDoesNotAnswerLeavesTimeForTheOthers(t *testing.T) {
	if !*clusters {
		return
	}
	nodes := brokers.FindRabbitMQ(t)
	queue := rand.Text()
	declare(t, nodes, queue)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	urls := append([]string{"amqp://guest:guest@" + silent.Addr().String() + "/"}, nodes.URLs...)
	p, err := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{URLs: urls, Timeout: 2 * timeout})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Publish(t.Context(), []relay.Record{{Destination: queue, ID: "1"}})[0]; err != nil {
		t.Errorf("Publish: got %v, want nil", err)
	}
}

// TestABlockedConnectionIsUnavailable: a broker without memory takes nothing, and says so.
func TestABlockedConnectionIsUnavailable(t *testing.T) {
	if !*clusters {
		return
	}
	nodes := brokers.FindRabbitMQ(t)
	queue := rand.Text()
	declare(t, nodes, queue)
	publisher := newPublisher(t, nodes)
	records := []relay.Record{{Destination: queue, ID: rand.Text()}}
	if err := publisher.Publish(t.Context(), records)[0]; err != nil {
		t.Fatal(err)
	}
	if err := nodes.Block(); err != nil {
		t.Fatal(err)
	}
	within := time.Now().Add(30 * time.Second) // it looks at its memory now and then
	for errors.Join(publisher.Publish(t.Context(), records)...) == nil && time.Now().Before(within) {
	}
	began := time.Now()
	if err := publisher.Publish(t.Context(), records)[0]; !errors.Is(err, relay.ErrUnavailable) || !strings.Contains(err.Error(), "blocks") {
		t.Errorf("a broker that blocks: got %v, want ErrUnavailable and why", err)
	}
	if took := time.Since(began); took > timeout/2 {
		t.Errorf("a broker that has said that it blocks: Publish took %s, want it at once", took)
	}
	if err := nodes.Unblock(); err != nil {
		t.Fatal(err)
	}
	err := errors.New("nothing was tried")
	for within = time.Now().Add(30 * time.Second); err != nil && time.Now().Before(within); {
		err = publisher.Publish(t.Context(), records)[0]
	}
	if err != nil {
		t.Errorf("a broker that does not block any more: got %v, want nil", err)
	}
}
