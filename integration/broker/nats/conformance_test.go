//go:build unix

package nats_test

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/asyncmonolith/asyncmonolith-go/broker/brokertest"
	amnats "github.com/asyncmonolith/asyncmonolith-go/broker/nats"
	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

func TestConformance(t *testing.T) {
	servers := brokers.StartNATS(t, 1)
	brokertest.Run(t, func(t *testing.T) brokertest.Setup {
		at := newPlace(t, servers, 1)
		setup := at.setup(t)
		setup.Disconnect = servers.Cut
		return setup
	})
}

// place is a stream with a consumer, of one test.
type place struct {
	servers   *brokers.NATS
	nc        *nats.Conn
	js        jetstream.JetStream
	name      string
	stream    jetstream.Stream
	publisher *amnats.Publisher
	timeout   time.Duration // of the publisher
}

const (
	timeout = 2 * time.Second
	ackWait = time.Second
)

// connect connects as an application would, but tries again sooner.
func connect(t testing.TB, servers *brokers.NATS) *nats.Conn {
	t.Helper()
	return connectTo(t, servers.URL(), nats.ReconnectWait(100*time.Millisecond))
}

func connectTo(t testing.TB, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	options = slices.Concat(amnats.Options(), []nats.Option{nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})}, options)
	nc := testapp.Must[*nats.Conn](t)(nats.Connect(url, options...))
	t.Cleanup(func() {
		nc.Close()
		for !nc.IsClosed() {
			<-time.After(time.Millisecond)
		}
	})
	return nc
}

// newPlace makes a stream for the subjects below its name, and a consumer of all of it.
func newPlace(t testing.TB, servers *brokers.NATS, replicas int) *place {
	t.Helper()
	at := &place{servers: servers, nc: connect(t, servers), name: rand.Text(), timeout: timeout}
	var err error
	if at.js, err = jetstream.New(at.nc); err != nil {
		t.Fatal(err)
	}
	retry(t, func(ctx context.Context) error {
		at.stream, err = at.js.CreateStream(ctx, jetstream.StreamConfig{Name: at.name, Subjects: []string{at.name + ".>"}, Replicas: replicas})
		return err
	})
	if replicas > 1 { // which answer slowly on a busy machine, and after they have elected a leader
		at.timeout = 2 * timeout
		retry(t, func(ctx context.Context) error {
			_, err := at.js.Publish(ctx, at.name+".warm", nil)
			return err
		})
		retry(t, func(ctx context.Context) error { return at.stream.Purge(ctx) })
	}
	retry(t, func(ctx context.Context) error {
		_, err := at.stream.CreateOrUpdateConsumer(ctx,
			jetstream.ConsumerConfig{Durable: "all", AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait})
		return err
	})
	at.publisher = newPublisher(t, at.nc, at.timeout)
	return at
}

func newPublisher(t testing.TB, nc *nats.Conn, timeout time.Duration) *amnats.Publisher {
	t.Helper()
	p := testapp.Must[*amnats.Publisher](t)(amnats.NewPublisher(nc, amnats.PublisherConfig{Timeout: timeout}))
	return p
}

// retry does what a cluster without a leader refuses for a while.
func retry(t testing.TB, do func(ctx context.Context) error) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		err := do(ctx)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		<-time.After(100 * time.Millisecond)
	}
}

func (at *place) subscriber(t testing.TB, consumer string) *amnats.Subscriber {
	t.Helper()
	s := testapp.Must[*amnats.Subscriber](t)(amnats.NewSubscriber(at.nc, amnats.SubscriberConfig{Stream: at.name, Consumer: consumer}))
	return s
}

func (at *place) setup(t *testing.T) brokertest.Setup {
	return brokertest.Setup{
		Publisher: at.publisher, Subscriber: at.subscriber(t, "all"), NoSubscription: at.subscriber(t, "none"),
		Destination: at.name + ".placed", Missing: "nowhere." + strings.ToLower(at.name), TooLarge: 1 << 20,
		Timeout: at.timeout, Redelivery: ackWait,
		Stop: at.servers.Kill, Freeze: at.servers.Pause, Start: at.servers.Start,
	}
}
