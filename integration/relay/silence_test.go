package relay_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// partitions is a broker with one topic that gives no answer for the keys of some partitions.
type partitions struct{ *memory }

func newPartitions(silent func(key string) bool) partitions {
	p := partitions{newBroker()}
	p.failWith(func(r broker.Record) error {
		if silent(r.Key) {
			return broker.ErrUnavailable
		}
		return nil
	})
	return p
}

// Publish implements broker.Publisher. It takes as long as a client waits for an answer.
func (p partitions) Publish(ctx context.Context, records []broker.Record) []error {
	errs := p.memory.Publish(ctx, records)
	for _, err := range errs {
		if err != nil {
			<-time.After(4 * time.Second)
			break
		}
	}
	return errs
}

// TestAnUnansweredPartitionDelaysNoOthers: a third of the keys, each of one order, gives no answer for minutes.
// Promise: relay-destination
func TestAnUnansweredPartitionDelaysNoOthers(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		const n = 150
		b := newPartitions(func(key string) bool { return strings.HasPrefix(key, "silent") })
		a := newApp(publishesWith(b, relay.Config{}))
		a.StartWith(ctx, outbox.ProcessorConfig{})
		healthy := 0
		for i := range n {
			key := "silent"
			if i%7%3 > 0 { // now and then two silent ones are in a row
				key = "healthy"
				healthy++
			}
			a.ProduceAt(ctx, order{ID: fmt.Sprint(i)}, outbox.OrderingKey(key+fmt.Sprint(i)))
			<-time.After(2 * time.Second)
		}
		<-time.After(2 * time.Minute)
		if got := len(b.all()); got != healthy {
			t.Errorf("published while a partition is silent: got %d, want all %d of the others", got, healthy)
		}
		b.failWith(nil)
		testapp.Sooner(t, "all are published", a.Empty)
		if got := len(b.all()); got != n {
			t.Errorf("published: got %d, want %d", got, n)
		}
	})
}

// TestAnOutageWritesToProbesAlone: each message has a key of its own.
// Promise: relay-destination
func TestAnOutageWritesToProbesAlone(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		const n = 2000
		b := newPartitions(func(string) bool { return true })
		a := newApp(publishesWith(b, relay.Config{}))
		for i := range n {
			a.ProduceAt(ctx, order{ID: fmt.Sprint(i)}, outbox.OrderingKey(fmt.Sprint(i)))
		}
		a.StartWith(ctx, outbox.ProcessorConfig{})
		<-time.After(10 * time.Minute)
		written := a.Count("SELECT count(*) FROM consumer_messages WHERE available_after > created_at")
		if calls := int(b.calls.Load()); written > calls || calls > 40 {
			t.Errorf("in 10 minutes: got %d messages written to and %d calls, want one for each probe, every 30 s", written, calls)
		}
		b.failWith(nil)
		testapp.Sooner(t, "all are published", a.Empty)
		if got := len(b.all()); got != n {
			t.Errorf("published: got %d, want %d", got, n)
		}
	})
}
