package txn_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

const (
	// receives begins a receiver's transaction. It may be idle for receiveIdle: layers, keys and codecs of the application run in it.
	receives    = `INSERT INTO "inbox_messages"`
	receiveIdle = 15 * time.Second
	// layers begins a transaction of a producer with layers, which may be idle for layersIdle.
	layers     = `SELECT name FROM "message_groups" WHERE name IN`
	layersIdle = 15 * time.Second
	// publishTimeout makes a shard's lease as short as it may be.
	publishTimeout   = time.Second
	forwarderLease   = 2*publishTimeout + 20*time.Second + time.Second // and a look
	logReceiverLease = receiveIdle + time.Second                       // which is longer than its lease of 10 s
	// handingOff begins a transaction of the application that hands messages off. It is stopped, too: the library writes the claim.
	handingOff = "SELECT 'handing off' AS handing_off, set_config('idle_in_transaction_session_timeout', '2s', true)"
)

// received comes from a broker, member is of a group, ended is what waits for the group, handed is handed off, and passed comes of
// it in a transaction of a consumer.
type (
	received struct{ N int }
	member   struct{ N int }
	ended    struct{ N int }
	handed   struct{ N int }
	passed   struct{ N int }
)

func (received) PayloadType() string { return "received" }
func (member) PayloadType() string   { return "member" }
func (ended) PayloadType() string    { return "ended" }
func (handed) PayloadType() string   { return "handed" }
func (passed) PayloadType() string   { return "passed" }

// receivers are of both kinds.
func (w *world) receivers() []inbox.Receiver {
	return []inbox.Receiver{
		inbox.NewReceiver("in", &deliveries{world: w, what: "receiver", kind: "received", bad: true}, inbox.Accept[received]()),
		inbox.NewReceiver("into log", &deliveries{world: w, what: "log receiver", kind: "happened"}, inbox.Accept[happened](),
			inbox.AppendToLog("far")),
	}
}

// addServices makes what runs beside processors, projections and operations. The receivers' consumers are in the registry.
func (w *world) addServices(receivers []inbox.Receiver) error {
	quiet := slog.New(slog.DiscardHandler)
	receiving, err := inbox.NewRunner(w.db, w.registry, w.producer, inbox.RunnerConfig{Log: w.log, Logger: quiet}, receivers...)
	forwarding, err2 := relay.NewRunner(w.db, w.registry, relay.RunnerConfig{Log: w.log, Logger: quiet},
		relay.NewLogForwarder("ledger", publisher{w}, relay.LogConfig{Source: "/world", Routes: []relay.Route{relay.To[happened]("events")},
			Shards: 2, ParkFailures: true, MaxAttempts: 1, AttemptDelay: 1, PublishTimeout: publishTimeout}))
	layered, err3 := outbox.NewProducer(w.registry, outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{
		func(next bus.ProduceFunc) bus.ProduceFunc { return next }}})
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	w.forwarding, w.layered = forwarding, layered
	w.services = []func(context.Context) error{receiving.Run, forwarding.Run}
	return nil
}

// publisher is a broker in memory that refuses some events, which are parked.
type publisher struct{ world *world }

// Publish implements broker.Publisher.
func (p publisher) Publish(_ context.Context, records []broker.Record) []error {
	errs := make([]error, len(records))
	for i, record := range records {
		if strings.HasSuffix(string(record.Body), `7}`) {
			errs[i] = broker.ErrRejected
		}
	}
	p.world.progress("forwarder")
	return errs
}

// deliveries is a broker in memory that delivers five batches in a second, each until it is accepted. Both processes get some
// records at the same time. When the load ends, the last batch is delivered again and again.
type deliveries struct {
	world *world
	what  string // makes progress
	kind  string // of events
	bad   bool   // some cannot be read, and are parked
	n     int
	batch []broker.Record
}

// Subscribe implements broker.Subscriber.
func (d *deliveries) Subscribe(ctx context.Context, fn func(context.Context, []broker.Record) error) error {
	beat := time.NewTicker(200 * time.Millisecond)
	defer beat.Stop()
	for ctx.Err() == nil {
		if d.batch == nil {
			d.batch = []broker.Record{d.record(fmt.Sprint(time.Now().Unix())), d.record(uuid.NewString())}
			if d.n++; d.bad && d.n%10 == 0 {
				d.batch = append(d.batch, broker.Record{Body: []byte(uuid.NewString())})
			}
		}
		if fn(ctx, d.batch) == nil {
			d.world.progress(d.what)
			if d.world.load.Err() == nil {
				d.batch = nil
			}
		}
		select {
		case <-beat.C:
		case <-ctx.Done():
		}
	}
	return nil
}

func (d *deliveries) record(id string) broker.Record {
	return broker.Record{Key: fmt.Sprint("account-", d.n%5), Body: fmt.Appendf(nil, `{"N":%d}`, d.n), ContentType: "application/json",
		Attributes: map[string]string{"specversion": "1.0", "id": id, "source": "/far", "type": d.kind}}
}

// serviceConsumers are those of messages of this file.
func (w *world) serviceConsumers() []bus.Consumer {
	return []bus.Consumer{
		bus.Consume("received", func(context.Context, received) error { w.progress("received"); return nil }),
		bus.Consume("member", func(ctx context.Context, m member) error {
			w.progress("member")
			if m.N%7 == 0 {
				return bus.Permanent(errors.New("never"))
			}
			return nil
		}),
		bus.Consume("ended", func(context.Context, ended) error { w.progress("ended"); return nil }),
		bus.Consume("steps", func(ctx context.Context, o order) error {
			w.progress("steps")
			_, err := outbox.Step(ctx, "one", func(context.Context) (int, error) { return o.N, nil })
			return err
		}),
		bus.Consume("keeps", func(context.Context, order) error { w.progress("keeps"); return nil }, bus.Keep(time.Second), bus.KeepPayload()),
		outbox.ConsumeTx("keeps tx", func(ctx context.Context, tx bun.Tx, _ order) error {
			w.progress("keeps tx")
			return w.write(ctx, tx)
		}, bus.Keep(time.Hour), bus.KeepPayload()),
		bus.ConsumeBatch("keeps batch", func(context.Context, []order) error { w.progress("keeps batch"); return nil }, bus.Keep(time.Second)),
		bus.Consume("handed", func(context.Context, handed) error { w.progress("handed"); return nil }),
		outbox.ConsumeTx("passes on", func(ctx context.Context, tx bun.Tx, h handed) error {
			w.progress("passes on")
			_, err := w.producer.Produce(ctx, tx, passed(h))
			return err
		}),
		bus.Consume("passed", func(context.Context, passed) error { w.progress("passed"); return nil }),
	}
}

// produceGroups writes members of groups that the others have as well, and what waits for them.
func (w *world) produceGroups(ctx context.Context, i int) error {
	group := outbox.Group(fmt.Sprint("g", time.Now().Unix()))
	_, err := w.producer.ProduceMany(ctx, w.db, outbox.Item{Payload: member{i}, Options: []outbox.Option{group}},
		outbox.Item{Payload: member{i + 1}, Options: []outbox.Option{group}})
	waits := w.producer.WhenDone(ctx, w.db, group, ended{i}, outbox.IfPoisoned(ended{-i}))
	if errors.Is(waits, outbox.ErrGroupExists) { // by one of the others
		waits = nil
	}
	return errors.Join(err, waits)
}

// handOff writes messages that are claimed in the statement, and in the transaction, that writes them.
func (w *world) handOff(ctx context.Context, i int) error {
	_, err := w.producer.Produce(ctx, w.db, handed{i})
	return errors.Join(err, w.producer.RunInTx(ctx, w.db, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.ExecContext(ctx, handingOff); err != nil {
			return err
		}
		_, err := w.producer.Produce(ctx, tx, handed{i})
		return err
	}))
}

// again produces a consumed message again, and publishes the log again.
func (w *world) again(ctx context.Context, i int) error {
	switch i % 10 {
	case 3:
		found, _, err := w.session.Consumed().List(ctx, admin.ConsumedFilter{Consumer: "keeps tx"}, admin.Page{Size: 1})
		if err == nil && len(found) > 0 {
			_, err = w.session.Consumed().Repeat(ctx, "why", found[0].ID)
		}
		return err
	case 8:
		return w.forwarding.Rewind(ctx, "ledger")
	}
	return nil
}

// produceThroughLayers writes messages with insert ids and groups that the others have as well, through a layer of the application.
func (w *world) produceThroughLayers(ctx context.Context, i int) error {
	second := fmt.Sprint("l", time.Now().Unix())
	_, err := w.layered.ProduceMany(ctx, w.db, outbox.Item{Payload: unique{i}, Options: []outbox.Option{outbox.InsertID(second)}},
		outbox.Item{Payload: member{i}, Options: []outbox.Option{outbox.Group(second)}})
	return err
}
