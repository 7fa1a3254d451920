//go:build unix

package nats_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	amnats "github.com/asyncmonolith/asyncmonolith-go/broker/nats"
	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

// setUp creates the stream and the consumer of docs/brokers/nats.md.
func setUp(ctx context.Context, js jetstream.JetStream, nodes int) error {
	// snippet: jetstream
	stream, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name:       "ORDERS",
		Subjects:   []string{"orders.>"},
		Replicas:   nodes,                // 3 survive the loss of one server
		Duplicates: 2 * time.Minute,      // duplicates within it are dropped
		MaxAge:     7 * 24 * time.Hour,   // longer than a receiver's downtime
		Discard:    jetstream.DiscardNew, // a full stream makes forwarders wait
	})
	if err != nil {
		return err
	}
	_, err = stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable:    "shipping",                  // one for each service that receives
		AckPolicy:  jetstream.AckExplicitPolicy, // needed
		MaxDeliver: -1,                          // needed: a limit drops records
		AckWait:    30 * time.Second,            // until a killed receiver's records are redelivered
	})
	// end
	return err
}

// TestSetUp: what the guide has is fit for a relay, and what it warns of is not.
func TestSetUp(t *testing.T) {
	servers := brokers.StartNATS(t, 1)
	nc := connect(t, servers)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	testapp.OK(t, setUp(t.Context(), js, 1))
	publisher, err := amnats.NewPublisher(nc, amnats.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := publisher.Check(t.Context(), "orders.placed"); err != nil {
		t.Errorf("got %v, want a stream that is fit", err)
	}
	if _, err := js.CreateStream(t.Context(),
		jetstream.StreamConfig{Name: "SHORT", Subjects: []string{"short"}, Duplicates: time.Second}); err != nil {
		t.Fatal(err)
	}
	err = publisher.Check(t.Context(), "short", "nowhere")
	for _, want := range []string{"drops duplicates for 1s", `subject "nowhere": find its stream`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}
