//go:build unix

package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"

	amnats "github.com/asyncmonolith/asyncmonolith-go/broker/nats"
	"github.com/asyncmonolith/asyncmonolith-go/broker/rabbitmq"
)

// RelayConfig has a worker pass jobs on to a broker, or take them from there.
type RelayConfig struct {
	Server    string   // the addresses of NATS servers; empty for none
	Rabbits   []string // instead: the addresses of RabbitMQ's nodes
	Publishes string   // the consumer that publishes jobs, if there is one
	Moves     string   // the consumer that has moved to where it publishes to, if one has
	Receives  bool     // jobs, for the other consumers
	Ring      RingConfig
	Hold      Point // where it waits to be killed, if anywhere
	After     int   // how often it passes that point before
	Log       LogConfig
}

// Names of what the broker has.
const (
	RelayStream   = "jobs"
	RelayConsumer = "all"
	RelayAstray   = "nowhere" // where jobs go that stray: the broker does not have it
)

// Point is a place in a worker's code that it passes with every batch.
type Point string

// The points.
const (
	Publishing Point = "publishing" // the broker does not have the batch
	Published  Point = "published"  // it does, and the database does not know
	Received   Point = "received"   // the database does not have the batch
	Inserted   Point = "inserted"   // it does, but for the commit
	Taken      Point = "taken"      // it is committed, and not acknowledged
)

// SenderPoints are those of a worker that publishes.
func SenderPoints() []Point { return []Point{Publishing, Published} }

// ReceiverPoints are those of one that receives.
func ReceiverPoints() []Point { return []Point{Received, Inserted, Taken} }

// Held tells whether a worker waits to be killed.
func (w *Worker) Held() bool {
	_, err := os.Stat(filepath.Join(w.config.Ledger, w.config.Name+".held"))
	return err == nil
}

// held is how long a worker waits at most.
const held = 20 * time.Second

// relays is the part of a worker that has to do with a broker.
type relays struct {
	config   RelayConfig
	name     string // of the worker
	recorder *Recorder
	nc       *nats.Conn
	rabbit   *rabbitmq.Publisher
	receiver inbox.Receiver
	passed   atomic.Int64 // the point to hold at
}

// newRelays connects to the broker, if there is one.
func newRelays(config WorkerConfig, recorder *Recorder) (*relays, error) {
	r := &relays{config: config.Relay, name: config.Name, recorder: recorder}
	if r.config.Server == "" {
		return r, nil
	}
	var err error
	r.nc, err = nats.Connect(r.config.Server, append(amnats.Options(),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)
	if err != nil {
		return nil, fmt.Errorf("chaos: relays: %w", err)
	}
	return r, nil
}

func (r *relays) close() {
	if r.rabbit != nil {
		r.rabbit.Close()
	}
	if r.nc != nil {
		r.nc.Close()
	}
}

// consumers are those that relays need.
func (r *relays) consumers() ([]bus.Consumer, error) {
	var consumers []bus.Consumer
	if r.config.Publishes != "" {
		publisher, err := r.publisher()
		if err != nil {
			return nil, err
		}
		to := relay.DestinationFunc(func(_ *bus.Message, job Job) (string, error) { return job.subject(), nil })
		config := relay.Config{Source: "/chaos", Routes: []relay.Route{relay.To[Job]("", to)}}
		var options []bus.ConsumerOption
		if ring := r.config.Ring; ring.Next != "" {
			config.Routes[0] = ring.route()
		}
		if r.config.Moves != "" {
			config.Recipients = []string{r.config.Moves}
			options = append(options, bus.Aliases(r.config.Moves))
		}
		consumers = append(consumers, relay.NewForwarder(r.config.Publishes, &watched{r, publisher}, config, options...))
	}
	if r.config.Log.Enters {
		subscriber, err := amnats.NewSubscriber(r.nc, amnats.SubscriberConfig{Stream: LogStream, Consumer: RelayConsumer, Ordered: true})
		if err != nil {
			return nil, err
		}
		r.receiver = inbox.NewReceiver(LogStream, subscriber, inbox.AppendToLog(LogCategory), inbox.Accept[Job]())
		consumers = append(consumers, r.receiver.Consumer())
	}
	if r.config.Receives {
		subscriber, err := r.subscriber()
		if err != nil {
			return nil, err
		}
		r.receiver = inbox.NewReceiver("jobs", subscriber, append(r.config.Ring.retention(), inbox.Accept[Job]())...)
		consumers = append(consumers, r.receiver.Consumer())
	}
	return consumers, nil
}

func (r *relays) publisher() (_ broker.Publisher, err error) {
	if len(r.config.Rabbits) == 0 {
		return amnats.NewPublisher(r.nc, amnats.PublisherConfig{})
	}
	r.rabbit, err = rabbitmq.NewPublisher(rabbitmq.PublisherConfig{URLs: r.config.Rabbits})
	return r.rabbit, err
}

func (r *relays) subscriber() (broker.Subscriber, error) {
	if len(r.config.Rabbits) == 0 {
		return amnats.NewSubscriber(r.nc, amnats.SubscriberConfig{Stream: cmp.Or(r.config.Ring.Stream, RelayStream), Consumer: RelayConsumer})
	}
	return rabbitmq.NewSubscriber(rabbitmq.SubscriberConfig{URLs: r.config.Rabbits, Queue: RelayStream})
}

// registry has the consumers of a worker, and those that relays need.
func (r *relays) registry(config WorkerConfig) (*bus.Registry, error) {
	consumers, err := r.consumers()
	if err != nil {
		return nil, err
	}
	return NewRegistry(r.recorder, config, consumers...)
}

// Declared are the consumers that a program has to know of which only produces.
func (c RelayConfig) Declared() []bus.Consumer {
	if c.Publishes == "" {
		return nil
	}
	if c.Ring.Next != "" {
		return []bus.Consumer{bus.Declare[Hop](c.Publishes, bus.Forwards())}
	}
	return []bus.Consumer{bus.Declare[Job](c.Publishes, bus.Forwards())}
}

// Consumers are the names of all that do jobs.
func (config WorkerConfig) Consumers() []string {
	all := slices.Concat(config.Plain, config.Tx)
	if config.Relay.Publishes != "" {
		all = append(all, config.Relay.Publishes)
	}
	return all
}

// runs are what a worker has to run for the broker.
func (r *relays) runs(db *bun.DB, registry *bus.Registry) ([]func(context.Context) error, error) {
	if !r.config.Receives && !r.config.Log.logged() {
		return nil, nil
	}
	run, err := r.runner(db, registry)
	if err != nil {
		return nil, err
	}
	runs := []func(context.Context) error{run}
	if r.config.Ring.Next != "" {
		runs = append(runs, r.recorder.weigh)
	}
	return runs, nil
}

// subject is where a job goes.
func (j Job) subject() string {
	if j.Do == Stray {
		return RelayAstray
	}
	return RelayStream
}

// runner runs the receiver, or the log's relay.
func (r *relays) runner(db *bun.DB, registry *bus.Registry) (run func(context.Context) error, err error) {
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{r.around("", Inserted)}})
	if err != nil {
		return nil, err
	}
	log, err := r.config.Log.log(registry, producer)
	if err != nil {
		return nil, err
	}
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	if r.config.Log.Shards == 0 {
		config := inbox.RunnerConfig{Telemetry: r.around(Received, Taken), Log: log, Logger: logger, StartTimeout: startTimeout}
		runner, err := inbox.NewRunner(db, registry, producer, config, r.receiver)
		if err != nil {
			return nil, err
		}
		return runner.Run, nil
	}
	forwarder, err := r.logForwarder()
	if err != nil {
		return nil, err
	}
	runner, err := relay.NewRunner(db, registry, relay.RunnerConfig{Log: log, Logger: logger, StartTimeout: startTimeout}, forwarder)
	if err != nil {
		return nil, err
	}
	return runner.Run, nil
}

// around passes a point before a batch is sent, and another after it.
func (r *relays) around(before, after Point) bus.ProduceMiddleware {
	return func(next bus.ProduceFunc) bus.ProduceFunc {
		return func(ctx context.Context, b *bus.Batch) error {
			r.pass(before)
			err := next(ctx, b)
			if err == nil {
				r.pass(after)
			}
			return err
		}
	}
}

// pass waits if this is where the worker is to be killed. Only the call that gets there waits.
func (r *relays) pass(at Point) {
	if at == "" || at != r.config.Hold || r.passed.Add(1) != int64(r.config.After)+1 {
		return
	}
	if err := os.WriteFile(filepath.Join(r.recorder.dir, r.name+".held"), nil, 0o600); err == nil {
		pause(held)
	}
}

// watched is a publisher whose records are in the ledger, as runs of the consumer.
type watched struct {
	*relays
	publisher broker.Publisher
}

// Publish implements broker.Publisher.
func (w *watched) Publish(ctx context.Context, records []broker.Record) []error {
	ms := make(map[string]*bus.Message)
	for _, m := range bus.BatchFromContext(ctx) {
		ms[m.ID.String()] = m
	}
	runs := make([]func(EventKind), len(records))
	for i, record := range records {
		var job Job
		w.must(json.Unmarshal(record.Body, &job))
		attempt, crashes := 1, 0
		if m := ms[record.Attributes["id"]]; m != nil {
			attempt, crashes = m.Attempt, m.CrashCount
		}
		runs[i] = func(kind EventKind) {
			if job.Do != Crowd || kind == Failed {
				w.must(w.recorder.Record(kind, w.config.Publishes, job.N, attempt, crashes))
			}
		}
		runs[i](Started)
	}
	w.pass(Publishing)
	results := w.publisher.Publish(ctx, records)
	w.pass(Published)
	for i, run := range runs {
		if len(results) > 0 && results[i] != nil {
			run(Failed)
		} else {
			run(Finished)
		}
	}
	return results
}

// OnReconnect implements broker.ReconnectNotifier, as the publishers do that it watches.
func (w *watched) OnReconnect(f func()) { w.publisher.(broker.ReconnectNotifier).OnReconnect(f) }

// must ends the worker if it cannot say what it does.
func (r *relays) must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos: relays:", err)
		os.Exit(2)
	}
}
