//go:build unix

package rabbitmq_test

import (
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/broker/rabbitmq"
	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

// TestABlockedConnectionIsUnavailable: a broker without memory takes nothing, and says so.
func TestABlockedConnectionIsUnavailable(t *testing.T) {
	nodes := brokers.FindRabbitMQ(t)
	queue := rand.Text()
	declare(t, nodes, queue)
	publisher := newPublisher(t, nodes)
	records := []broker.Record{{Destination: queue, ID: rand.Text()}}
	testapp.OK(t, publisher.Publish(t.Context(), records)[0])
	block(t, nodes, publisher, records)
	began := time.Now()
	if err := publisher.Publish(t.Context(), records)[0]; !errors.Is(err, broker.ErrUnavailable) || !strings.Contains(err.Error(), "blocks") {
		t.Errorf("a broker that blocks: got %v, want ErrUnavailable and why", err)
	}
	if took := time.Since(began); took > timeout/2 {
		t.Errorf("a broker that has said that it blocks: Publish took %s, want it at once", took)
	}
	unblock(t, nodes, publisher, records)
}

// TestChannelsOfABlockedBrokerAreClosed: what waits when the broker blocks gives up its channel, on which records were
// left. However often that happens, none stays behind.
func TestChannelsOfABlockedBrokerAreClosed(t *testing.T) {
	nodes := brokers.FindRabbitMQ(t)
	queue := rand.Text()
	declare(t, nodes, queue)
	before := testapp.Must[int](t)(nodes.Channels())
	publisher := newPublisher(t, nodes)
	const atOnce = 4
	for range 3 {
		var wg sync.WaitGroup
		for range atOnce {
			wg.Go(func() { untilBlocked(t, publisher, batch(queue)) }) // so that much is on its way
		}
		testapp.OK(t, nodes.Block())
		wg.Wait()
		unblock(t, nodes, publisher, []broker.Record{{Destination: queue, ID: rand.Text()}})
	}
	if now, err := nodes.Channels(); err != nil || now-before > atOnce {
		t.Errorf("channels: got %d more than before, error %v, want %d at most", now-before, err, atOnce)
	}
	// What is confirmed late is not taken for what was published on a channel of before: this has no queue.
	for range 10 {
		got := publisher.Publish(t.Context(), []broker.Record{{Destination: "nowhere-" + queue, ID: rand.Text()},
			{Destination: queue, ID: rand.Text()}})
		if !errors.Is(got[0], broker.ErrNoDestination) || got[1] != nil {
			t.Errorf("after the broker blocked: got %v, want ErrNoDestination and nil", got)
		}
	}
}

// block has the broker take nothing, and waits until it says so.
func block(t *testing.T, nodes *brokers.RabbitMQ, publisher *rabbitmq.Publisher, records []broker.Record) {
	t.Helper()
	testapp.OK(t, nodes.Block())
	untilBlocked(t, publisher, records)
}

// untilBlocked publishes until the broker says that it blocks: it looks at its memory now and then.
func untilBlocked(t *testing.T, publisher *rabbitmq.Publisher, records []broker.Record) {
	t.Helper()
	within := time.Now().Add(30 * time.Second)
	for errors.Join(publisher.Publish(t.Context(), records)...) == nil && time.Now().Before(within) {
	}
}

// unblock has the broker take everything again, and waits until it does.
func unblock(t *testing.T, nodes *brokers.RabbitMQ, publisher *rabbitmq.Publisher, records []broker.Record) {
	t.Helper()
	testapp.OK(t, nodes.Unblock())
	err := errors.New("nothing was tried")
	for within := time.Now().Add(30 * time.Second); err != nil && time.Now().Before(within); {
		err = publisher.Publish(t.Context(), records)[0]
	}
	if err != nil {
		t.Errorf("a broker that does not block any more: got %v, want nil", err)
	}
}
