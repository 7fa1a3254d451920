//go:build unix

package chaos_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	amnats "github.com/asyncmonolith/asyncmonolith-go/broker/nats"
	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
)

// What the bars of relays need: a broker, and a service on either side of it, each with a
// database of its own.

// relayed is a broker between two services: jobs are produced in one, and done in the other.
type relayed struct {
	*bar
	servers  *brokers.NATS
	nc       *nats.Conn
	js       jetstream.JetStream
	replicas int
	stream   string // what the receivers read
	from, to *run
}

const (
	publishes = "to-broker" // the consumer of the sender
	ackWait   = time.Second
)

// newBroker starts so many servers, with a stream that forgets at once what it has had: all that
// is published twice is in it twice.
func newBroker(b *bar, servers int, stream string) *relayed {
	b.Helper()
	return newBrokerOf(b, brokers.StartNATS(b, servers), stream)
}

func newBrokerOf(b *bar, servers *brokers.NATS, stream string) *relayed {
	b.Helper()
	r := &relayed{bar: b, servers: servers, replicas: len(servers.Nodes), stream: stream}
	b.atEnd(func() { _ = r.servers.Kill() })
	var err error
	if r.nc, err = nats.Connect(r.servers.URL(),
		append(amnats.Options(), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		r.nc.Close()
		b.eventually(10*time.Second, "the connection has ended", r.nc.IsClosed)
	})
	if r.js, err = jetstream.New(r.nc); err != nil {
		b.Fatal(err)
	}
	r.newStream(stream)
	r.newConsumer()
	return r
}

// newStream makes a stream of the subject of its name, and of all below it.
func (r *relayed) newStream(name string) {
	r.Helper()
	r.ask("create a stream", func(ctx context.Context) error {
		_, err := r.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: name, Subjects: []string{name, name + ".>"}, Replicas: r.replicas, Duplicates: 100 * time.Millisecond, AllowAtomicPublish: true,
		})
		return err
	})
}

// newConsumer makes the consumer of the receivers, to which everything is new.
func (r *relayed) newConsumer() {
	r.Helper()
	r.ask("create a consumer", func(ctx context.Context) error {
		_, err := r.js.CreateOrUpdateConsumer(ctx, r.stream, jetstream.ConsumerConfig{
			Durable: chaos.RelayConsumer, AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: 10_000,
		})
		return err
	})
}

// ask does something with the broker, again and again until it answers.
func (r *relayed) ask(what string, do func(ctx context.Context) error) {
	r.Helper()
	var last error
	defer func() {
		if last != nil {
			r.Logf("%s: %v", what, last)
		}
	}()
	r.eventually(time.Minute, what, func() bool {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 3*time.Second)
		defer cancel()
		last = do(ctx)
		return last == nil
	})
}

// sender is the service that produces, with other consumers of its own, receiver the one that has the effects.
func (r *relayed) sender(dsn string, others ...string) {
	r.Helper()
	r.from = newRun(r.bar, dsn, chaos.WorkerConfig{Lease: 2 * time.Second, Plain: others,
		Relay: chaos.RelayConfig{Server: r.servers.URL(), Publishes: publishes}})
}

func (r *relayed) receiver(dsn string) {
	r.Helper()
	r.to = newRun(r.bar, dsn, receives(chaos.RelayConfig{Server: r.servers.URL(), Receives: true}))
}

// receives are the consumers with effects.
func receives(relay chaos.RelayConfig) chaos.WorkerConfig {
	return chaos.WorkerConfig{Lease: 2 * time.Second, Tx: []string{"one", "grouped"}, Grouped: []string{"grouped"}, Relay: relay}
}

// done tells whether a job has its effects, or something is poisoned, which unharmed reports.
func (r *relayed) done(job int) bool {
	r.Helper()
	return r.to.count("SELECT count(*) FROM effects WHERE job = ?", job) == len(r.to.config.Tx) ||
		r.from.count("SELECT count(*) FROM poisoned_messages") > 0
}

// unharmed fails the bar if the broker's trouble was counted against a message.
func (r *relayed) unharmed() {
	r.Helper()
	charged := 0
	for _, e := range r.from.ledger() {
		if e.Attempt > 1 || e.Crashes > 0 {
			charged++
		}
	}
	if poisoned := r.from.count("SELECT count(*) FROM poisoned_messages"); charged+poisoned > 0 {
		r.Errorf("while leaders were elected: got %d runs with attempts or crashes, %d poisoned, want none", charged, poisoned)
	}
}

// storedAll fails the bar unless the broker has so many jobs, and twice no more than were in flight.
// It returns how many are.
func (r *relayed) storedAll(jobs, inFlight int) (twice int) {
	r.Helper()
	stored := r.stored(r.stream)
	for _, count := range stored {
		twice += count - 1
	}
	if len(stored) != jobs || twice > inFlight {
		r.Errorf("the broker's records: got %d jobs of %d, and %d twice, want at most the %d that were in flight", len(stored), jobs,
			twice, inFlight)
	}
	return twice
}

// killAt has one more worker, and kills it a while after it has got to a point.
func (r *run) killAt(config chaos.WorkerConfig, point chaos.Point, after time.Duration, meanwhile func()) {
	r.Helper()
	config.Relay.Hold, config.Relay.After = point, r.IntN(3)
	place := len(r.workers)
	victim := r.startAs(place, config)
	r.eventually(30*time.Second, "a worker gets to point "+string(point), func() bool { meanwhile(); return victim.Held() })
	pause(r.between(0, after+1))
	r.kill(place)
	r.workers = r.workers[:place]
}

// info is what the broker knows of the receivers.
func (r *relayed) info() (info *jetstream.ConsumerInfo) {
	r.Helper()
	r.ask("look at the consumer", func(ctx context.Context) error {
		consumer, err := r.js.Consumer(ctx, r.stream, chaos.RelayConsumer)
		if err == nil {
			info = consumer.CachedInfo()
		}
		return err
	})
	return info
}

// delivered tells whether the receivers have acknowledged everything.
func (r *relayed) delivered() bool {
	r.Helper()
	info := r.info()
	return info.NumPending == 0 && info.NumAckPending == 0
}

// settle waits until all jobs are done on the other side, and returns how long that took.
func (r *relayed) settle() time.Duration {
	r.Helper()
	return r.eventually(4*time.Minute, "everything is settled", func() bool { return r.from.settled() && r.delivered() && r.to.settled() })
}

// stored is how often the broker has each job.
func (r *relayed) stored(stream string) map[int]int {
	r.Helper()
	counts := make(map[int]int)
	for _, e := range r.entries(stream) {
		counts[e.Job]++
	}
	return counts
}

// entries are what a stream of the broker has, in its order.
func (r *relayed) entries(stream string) (entries []chaos.Entry) {
	r.Helper()
	r.ask("read the stream", func(ctx context.Context) error {
		entries = nil
		return r.read(ctx, stream, func(job chaos.Job) { entries = append(entries, chaos.Entry{Stream: job.Key, Job: job.N}) })
	})
	return entries
}

func (r *relayed) read(ctx context.Context, stream string, each func(chaos.Job)) error {
	s, err := r.js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	consumer, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	for left := int(s.CachedInfo().State.Msgs); left > 0; {
		batch, err := consumer.FetchNoWait(min(left, 5000))
		if err != nil {
			return err
		}
		got := 0
		for msg := range batch.Messages() {
			var job chaos.Job
			if err := json.Unmarshal(msg.Data(), &job); err != nil {
				return err
			}
			each(job)
			got++
		}
		if left -= got; got == 0 {
			return errors.Join(errors.New("the stream has less than it says"), batch.Error())
		}
	}
	return nil
}

// findings are what the judge says of both services.
type findings struct{ from, to chaos.Findings }

// judge has both services judged. The jobs of the one are those of the other.
func (r *relayed) judge(onlyKills bool) findings {
	r.Helper()
	r.from.stopAll()
	r.to.stopAll()
	r.to.jobs, r.to.never = slices.Clone(r.from.jobs), slices.Clone(r.from.never)
	return findings{r.from.judgeAfter(onlyKills), r.to.judgeAfter(onlyKills)}
}

// inFlight is how many runs were under way at the kills of a service's workers.
func (r *run) inFlight() (n int) {
	r.Helper()
	_, running := r.evidence().Strikes(r.killed)
	for _, each := range running {
		n += each
	}
	return n
}
