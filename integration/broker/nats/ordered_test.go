//go:build unix

package nats_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"

	amnats "github.com/asyncmonolith/asyncmonolith-go/broker/nats"
)

// TestOrderSurvivesAKill has connections cut that hold messages, and batches that are given back:
// what is acknowledged is in the order of the stream all the same.
func TestOrderSurvivesAKill(t *testing.T) {
	at, a := newShelf(t, brokers.StartNATS(t, 1), 1)
	testapp.OK(t, testapp.Second(at.stream.CreateOrUpdateConsumer(t.Context(), allOfIt())))
	const n = 500
	testapp.OK(t, testapp.Second(a.Append(t.Context(), 0, 0, numbered(1, n))))
	var mu sync.Mutex
	var got []int
	calls := 0
	take := func(_ context.Context, records []broker.Record) error {
		mu.Lock()
		defer mu.Unlock()
		if calls++; calls%4 == 0 {
			return errors.New("not now")
		}
		for _, r := range records {
			i, err := strconv.Atoi(string(r.Body))
			if err != nil {
				return err
			}
			got = append(got, i)
		}
		return nil
	}
	taken := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(got)
	}
	run := func(fn func(context.Context, []broker.Record) error) (nc *nats.Conn, stop func()) {
		nc = connect(t, at.servers)
		s, err := amnats.NewSubscriber(nc, amnats.SubscriberConfig{Stream: at.name, Consumer: "all", Batch: 20, Ordered: true})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.Subscribe(ctx, fn) // a connection that is closed is an error
		}()
		return nc, sync.OnceFunc(func() { nc.Close(); cancel(); <-done })
	}
	for want := 100; want <= 300; want += 100 {
		// Killed with a batch in its hands: the connection is gone before it can say anything.
		var once sync.Once
		holds, goes := make(chan struct{}), make(chan struct{})
		nc, stop := run(func(ctx context.Context, records []broker.Record) error {
			if taken() >= want-60 {
				once.Do(func() { close(holds) })
				<-goes
				return errors.New("killed")
			}
			return take(ctx, records)
		})
		<-holds
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			stop()
		}()
		for !nc.IsClosed() {
			<-time.After(time.Millisecond)
		}
		close(goes)
		<-stopped
	}
	_, stop := run(take)
	defer stop()
	testapp.Poll(t, "all are there", 20*time.Second, 10*time.Millisecond, func() bool { return taken() >= n })
	mu.Lock()
	defer mu.Unlock()
	next := 1
	for i, number := range got {
		switch {
		case number < next: // it was acknowledged after its second, on a busy machine, and has come again
		case number > next:
			t.Fatalf("got %d in place %d, want %d: %v", number, i+1, next, got[max(i-5, 0):min(i+5, len(got))])
		default:
			next++
		}
	}
}

// allOfIt is a consumer whose messages come again after a second.
func allOfIt() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{Durable: "all", AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait}
}
