//go:build unix

package rabbitmq_test

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/asyncmonolith/asyncmonolith-go/broker"

	mathrand "math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/asyncmonolith/asyncmonolith-go/broker/rabbitmq"
	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

// TestClassesOfRecords: what becomes of records has its class, and never takes good ones with it.
func TestClassesOfRecords(t *testing.T) {
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
	fill := make([]broker.Record, 50)
	for i := range fill {
		fill[i] = broker.Record{Destination: full, ID: rand.Text()}
	}
	_ = publisher.Publish(t.Context(), fill) // as many as it takes
	if err := publisher.Publish(t.Context(), fill[:1])[0]; !errors.Is(err, broker.ErrUnavailable) || errors.Is(err, broker.ErrNoDestination) {
		t.Errorf("a queue that is full, at a connection that has just begun: got %v, want ErrUnavailable", err)
	}
	testapp.Eventually(t, "a queue that is full is a missing destination", func() bool {
		return errors.Is(publisher.Publish(t.Context(), fill[:1])[0], broker.ErrNoDestination)
	})
	testapp.OK(t, try(nodes.URLs[0], func(channel *amqp.Channel) error { _, err := channel.QueuePurge(full, false); return err }))
	if err := publisher.Publish(t.Context(), fill[:1])[0]; err != nil {
		t.Errorf("a queue that was emptied: got %v, want it published", err)
	}

	lost := testapp.Must[*rabbitmq.Publisher](t)(rabbitmq.NewPublisher(rabbitmq.PublisherConfig{URLs: nodes.URLs, Exchange: "nowhere"}))
	defer lost.Close()
	for range 2 {
		for i, err := range lost.Publish(t.Context(), fill[:3]) {
			if !errors.Is(err, broker.ErrNoDestination) {
				t.Errorf("record %d to an exchange that does not exist: got %v, want ErrNoDestination", i, err)
			}
		}
	}
}

func TestWrongCredentialsAreSaid(t *testing.T) {
	nodes := brokers.FindRabbitMQ(t)
	wrong := strings.Replace(nodes.URLs[0], "guest:guest", "guest:secret", 1)
	s, err := rabbitmq.NewSubscriber(rabbitmq.SubscriberConfig{URLs: []string{wrong}, Queue: "any"})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Subscribe(t.Context(), func(context.Context, []broker.Record) error { return nil })
	if !errors.Is(err, amqp.ErrCredentials) || strings.Contains(err.Error(), "secret") {
		t.Errorf("Subscribe: got %v, want the credentials blamed, and not told", err)
	}
	p, err := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{URLs: []string{wrong}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	err = p.Publish(t.Context(), make([]broker.Record, 1))[0]
	if !errors.Is(err, broker.ErrUnavailable) || !errors.Is(err, amqp.ErrCredentials) || strings.Contains(err.Error(), "secret") {
		t.Errorf("Publish: got %v, want ErrUnavailable and the credentials blamed, and not told", err)
	}
}

// TestANodeThatDoesNotAnswerLeavesTimeForTheOthers: it takes connections and says nothing.
func TestANodeThatDoesNotAnswerLeavesTimeForTheOthers(t *testing.T) {
	nodes := brokers.FindRabbitMQ(t)
	queue := rand.Text()
	declare(t, nodes, queue)
	silent := testapp.Must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer silent.Close()
	urls := append([]string{"amqp://guest:guest@" + silent.Addr().String() + "/"}, nodes.URLs...)
	p := testapp.Must[*rabbitmq.Publisher](t)(rabbitmq.NewPublisher(rabbitmq.PublisherConfig{URLs: urls, Timeout: 2 * timeout}))
	defer p.Close()
	if err := p.Publish(t.Context(), []broker.Record{{Destination: queue, ID: "1"}})[0]; err != nil {
		t.Errorf("Publish: got %v, want nil", err)
	}
}

// TestABadRecordDelaysOnlyItself: for a routing key that is forbidden, and for a record that is too large, the broker closes
// the channel, on which others are on their way, and does not say which it is.
func TestABadRecordDelaysOnlyItself(t *testing.T) {
	nodes := brokers.FindRabbitMQ(t)
	exchange, queue := rand.Text(), rand.Text()
	declare(t, nodes, queue)
	err := try(nodes.URLs[0], func(channel *amqp.Channel) error {
		return errors.Join(channel.ExchangeDeclare(exchange, amqp.ExchangeTopic, true, false, false, false, nil),
			channel.QueueBind(queue, "#", exchange, false, nil))
	})
	testapp.OK(t, errors.Join(err, nodes.Permit(exchange, "^allowed")))
	publisher, err := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{URLs: nodes.URLs, Exchange: exchange, Timeout: 5 * timeout})
	if err != nil {
		t.Fatal(err)
	}
	defer publisher.Close()
	forbid := func(r *broker.Record) { r.Destination = "forbidden" }
	enlarge := func(r *broker.Record) { r.Body = make([]byte, 1<<20+1) }
	all := func(n int) []int {
		places := make([]int, n)
		for i := range places {
			places[i] = i
		}
		return places
	}
	for _, test := range []struct {
		name    string
		records int
		forbid  []int
		enlarge []int
	}{
		{"one is forbidden", 256, []int{100}, nil},
		{"the first and the last are forbidden", 256, []int{0, 255}, nil},
		{"one is too large", 256, nil, []int{100}},
		{"both, of more than are sent at once", 700, []int{3, 300, 650}, []int{299, 699}},
		{"one alone is forbidden", 1, []int{0}, nil},
		{"all are forbidden", 256, all(256), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			records, want := batch("allowed")[:0], map[int]error{}
			for len(records) < test.records {
				records = append(records, batch("allowed")...)
			}
			records = records[:test.records]
			for _, i := range test.forbid {
				forbid(&records[i])
				want[i] = broker.ErrNoDestination
			}
			for _, i := range test.enlarge {
				enlarge(&records[i])
				want[i] = broker.ErrRejected
			}
			wrong := 0
			for i, err := range publisher.Publish(t.Context(), records) {
				if want[i] == nil && err != nil || want[i] != nil && (!errors.Is(err, want[i]) || errors.Is(err, broker.ErrUnavailable)) {
					if wrong++; wrong < 4 {
						t.Errorf("record %d: got %v, want %v", i, err, want[i])
					}
				}
			}
			if wrong > 0 {
				t.Errorf("of %d records got %d wrong", len(records), wrong)
			}
		})
	}
}

// TestAConnectionThatIsCutIsNoMissingDestination: one call gives up, and with it the connection, on which another is
// sending. What that could not send the broker has not answered for, and has not rejected.
func TestAConnectionThatIsCutIsNoMissingDestination(t *testing.T) {
	nodes := brokers.FindRabbitMQ(t)
	queue := rand.Text()
	err := try(nodes.URLs[0], func(channel *amqp.Channel) error {
		_, err := channel.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-max-length": int64(10)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	publisher, err := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{URLs: nodes.URLs, Timeout: 10 * timeout})
	if err != nil {
		t.Fatal(err)
	}
	defer publisher.Close()
	large := make([]broker.Record, 30)
	for i := range large {
		large[i] = broker.Record{Destination: queue, ID: rand.Text(), Body: make([]byte, 900_000)}
	}
	cut := 0
	for range 100 {
		var gaveUp sync.WaitGroup
		gaveUp.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond+mathrand.N(50*time.Millisecond))
			defer cancel()
			_ = publisher.Publish(ctx, large)
		})
		for i, err := range publisher.Publish(t.Context(), large) {
			if err != nil {
				cut++
			}
			if err != nil && !errors.Is(err, broker.ErrUnavailable) {
				t.Fatalf("record %d of a connection that was cut: got %v, want ErrUnavailable", i, err)
			}
		}
		gaveUp.Wait()
	}
	if cut == 0 {
		t.Error("no connection was cut while records were sent: this has seen nothing")
	}
}

// TestAQueueWithoutLeaderIsNoMissingDestination: the node dies that leads a quorum queue, and that publishers are connected
// to. Until another leads it, it rejects what comes by channels that were opened meanwhile, as a queue does that is full. It is away,
// however: a destination that is missing would have the relay write to all that waits for it.
func TestAQueueWithoutLeaderIsNoMissingDestination(t *testing.T) {
	nodes := brokers.FindRabbitMQ(t)
	if len(nodes.URLs) == 1 { // whose queues have no leader
		return
	}
	queue := rand.Text()
	declare(t, nodes, queue)
	leader, err := nodes.Leader(queue)
	if err != nil {
		t.Fatal(err)
	}
	urls := append([]string{nodes.URLs[leader]}, slices.Delete(slices.Clone(nodes.URLs), leader, leader+1)...)
	var publishing sync.WaitGroup
	var killed, rejected atomic.Bool
	within := time.Now().Add(time.Minute)
	for range 8 { // channels, which are opened anew at the next node
		publisher := testapp.Must[*rabbitmq.Publisher](t)(rabbitmq.NewPublisher(rabbitmq.PublisherConfig{URLs: urls, Timeout: timeout}))
		publishing.Go(func() {
			defer publisher.Close()
			for published := 0; published < 3; {
				errs := publisher.Publish(t.Context(), batch(queue)[:10])
				for _, err := range errs {
					if errors.Is(err, broker.ErrNoDestination) || err != nil && !errors.Is(err, broker.ErrUnavailable) {
						t.Errorf("a queue without leader: got %v, want ErrUnavailable", err)
						return
					}
				}
				err := errors.Join(errs...)
				switch {
				case err == nil && killed.Load():
					published++
				case err != nil && strings.Contains(err.Error(), "rejected the record"):
					rejected.Store(true)
				}
				if time.Now().After(within) {
					t.Errorf("after a minute got %v, want batches published", err)
					return
				}
			}
		})
	}
	err = nodes.KillNode(leader)
	killed.Store(true)
	publishing.Wait()
	testapp.OK(t, errors.Join(err, nodes.Start()))
	if !rejected.Load() && !t.Failed() {
		t.Error("no record was rejected: this has seen nothing")
	}
}

// TestAQueueWithoutMajorityIsNoMissingDestination: that lasts, and so a connection to the node that is left is old. The queue of
// the default exchange is known, and is asked.
func TestAQueueWithoutMajorityIsNoMissingDestination(t *testing.T) {
	nodes := brokers.FindRabbitMQ(t)
	if len(nodes.URLs) == 1 {
		return
	}
	queue := rand.Text()
	declare(t, nodes, queue)
	// A channel that is new to the queue waits for a leader before it rejects anything: some seconds, or not at all.
	publisher, err := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{URLs: nodes.URLs[2:3], Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer publisher.Close()
	testapp.OK(t, errors.Join(publisher.Publish(t.Context(), batch(queue))...))
	if err := errors.Join(nodes.KillNode(0), nodes.KillNode(1)); err != nil { // declare has connected to the first, which leads it
		t.Fatal(err)
	}
	rejected, last := 0, error(nil)
	for within := time.Now().Add(time.Minute); rejected < 10 && time.Now().Before(within); {
		err := publisher.Publish(t.Context(), batch(queue)[:1])[0]
		last = err
		if err == nil || !errors.Is(err, broker.ErrUnavailable) || errors.Is(err, broker.ErrNoDestination) {
			t.Errorf("a queue without majority: got %v, want ErrUnavailable", err)
			break
		}
		if strings.Contains(err.Error(), "so it has no leader") {
			rejected++
		}
		<-time.After(100 * time.Millisecond)
	}
	testapp.OK(t, nodes.Start())
	if rejected == 0 && !t.Failed() {
		t.Errorf("no record was rejected by an old connection, the last error is %v: this has seen nothing", last)
	}
	testapp.Eventually(t, "it is published", func() bool { return publisher.Publish(t.Context(), batch(queue)[:1])[0] == nil })
}

// TestNothingOvertakesWhatIsRejected: a queue that is full rejects a record, and takes the next one. In order, as a log
// relay publishes, each record is there before those behind it.
func TestNothingOvertakesWhatIsRejected(t *testing.T) {
	nodes := brokers.FindRabbitMQ(t)
	queue := rand.Text()
	err := try(nodes.URLs[0], func(channel *amqp.Channel) error {
		_, err := channel.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-max-length": int64(3), "x-overflow": "reject-publish"})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	const n = 200
	slow, err := rabbitmq.NewSubscriber(rabbitmq.SubscriberConfig{URLs: nodes.URLs, Queue: queue, Batch: 1})
	if err != nil {
		t.Fatal(err)
	}
	var first []int
	known, all := make(map[string]bool), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	var subscribed sync.WaitGroup
	subscribed.Go(func() {
		err := slow.Subscribe(ctx, func(_ context.Context, records []broker.Record) error {
			<-time.After(10 * time.Millisecond) // so that the queue is full at times
			for _, r := range records {
				if i, err := strconv.Atoi(r.ID); err == nil && !known[r.ID] {
					known[r.ID], first = true, append(first, i)
				}
			}
			if len(first) == n {
				close(all)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	publisher, rejected := newPublisher(t, nodes), 0
	within := time.Now().Add(time.Minute)
	for done := 0; done < n && time.Now().Before(within); {
		var records []broker.Record
		for i := done; i < min(done+100, n); i++ {
			records = append(records, broker.Record{Destination: queue, ID: strconv.Itoa(i), Body: []byte("{}")})
		}
		there, err := publisher.PublishInOrder(ctx, records)
		if err != nil && !strings.Contains(err.Error(), "rejected the record") {
			t.Fatal(err)
		}
		if err != nil {
			rejected++
		}
		done += there
	}
	select {
	case <-all:
	case <-time.After(time.Minute):
		t.Error("waited a minute for all records")
	}
	cancel()
	subscribed.Wait()
	if !slices.IsSorted(first) {
		t.Errorf("%d records came for the first time out of order: %d", len(first), first)
	}
	if rejected == 0 {
		t.Error("no record was rejected: this has seen nothing")
	}
}
