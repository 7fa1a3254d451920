//go:build unix

package nats_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/asyncmonolith/asyncmonolith-go/broker/brokertest"
	amnats "github.com/asyncmonolith/asyncmonolith-go/broker/nats"
	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

// TestConformanceBeyondALeafNode: the application is connected to a server with a domain of its own, and the stream is in
// that of the hub.
func TestConformanceBeyondALeafNode(t *testing.T) {
	hub, leaf := brokers.StartLeafNATS(t)
	brokertest.Run(t, func(t *testing.T) brokertest.Setup {
		at := newPlace(t, hub, 1)
		nc := connect(t, leaf)
		publisher := testapp.Must[*amnats.Publisher](t)(amnats.NewPublisher(nc, amnats.PublisherConfig{Domain: "hub", Timeout: timeout}))
		subscriber := func(consumer string) *amnats.Subscriber {
			s, err := amnats.NewSubscriber(nc, amnats.SubscriberConfig{Domain: "hub", Stream: at.name, Consumer: consumer})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		if err := publisher.Check(t.Context(), at.name+".placed"); err != nil {
			t.Errorf("check in the domain of the hub: got %v, want nil", err)
		}
		if err := newPublisher(t, nc, timeout).Check(t.Context(), at.name+".placed"); err == nil ||
			!strings.Contains(err.Error(), "find its stream") {
			t.Errorf("check in the domain of the leaf: got %v, want no stream found", err)
		}
		return brokertest.Setup{
			Publisher: publisher, Subscriber: subscriber("all"), NoSubscription: subscriber("none"),
			Destination: at.name + ".placed", Missing: "nowhere." + strings.ToLower(at.name), TooLarge: 1 << 20,
			Timeout: timeout, Redelivery: ackWait,
		}
	})
}

// TestAnAppenderBeyondALeafNode: an atomic batch arrives whole, and one that is stale is refused.
func TestAnAppenderBeyondALeafNode(t *testing.T) {
	hub, leaf := brokers.StartLeafNATS(t)
	name := rand.Text()
	js := testapp.Must[jetstream.JetStream](t)(jetstream.New(connect(t, hub)))
	retry(t, func(ctx context.Context) error {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, AllowAtomicPublish: true})
		return err
	})
	a, err := amnats.NewAppender(connect(t, leaf), amnats.AppenderConfig{Domain: "hub", Stream: name, Prefix: name + ".log"})
	if err != nil {
		t.Fatal(err)
	}
	revision := testapp.Must[uint64](t)(a.Append(t.Context(), 0, 0, numbered(1, 50)))
	if _, err := a.Append(t.Context(), 0, 0, numbered(51, 52)); err == nil {
		t.Error("append after a stale revision: got nil, want an error")
	}
	if _, position, last, err := a.Last(t.Context(), 0); position != 50 || last != revision || err != nil {
		t.Errorf("the last record: got %d with revision %d, error %v, want 50 with %d", position, last, err, revision)
	}
}
