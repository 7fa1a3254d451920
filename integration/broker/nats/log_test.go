//go:build unix

package nats_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"

	amnats "github.com/asyncmonolith/asyncmonolith-go/broker/nats"
)

type deposited struct {
	Amount int `json:"amount"`
}

func (deposited) PayloadType() string { return "account.deposited" }

// bank is a service with an event log.
type bank struct {
	*testapp.App
	log *eventlog.Log
}

func newBank(t *testing.T, db *bun.DB, consumers ...bus.Consumer) *bank {
	t.Helper()
	a := testapp.New(t, db)
	types := testapp.Must[*eventlog.Types](t)(eventlog.NewTypes(eventlog.Event[deposited]()))
	a.Registry = testapp.Must[*bus.Registry](t)(bus.RegistryConfig{Events: types}.NewRegistry(consumers...))
	a.Producer = testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry, outbox.ProducerConfig{}))
	return &bank{App: a, log: testapp.Must[*eventlog.Log](t)(eventlog.NewLog(a.Registry, a.Producer, eventlog.LogConfig{}))}
}

// deposit appends n events, spread over streams.
func (b *bank) deposit(n, streams int) {
	b.Helper()
	for i := 0; i < n; i += streams {
		writes := make([]eventlog.Write, streams)
		for j := range writes {
			writes[j] = eventlog.Write{Stream: "account-" + strconv.Itoa(j), Expected: eventlog.AnyVersion, Events: []bus.Payload{deposited{i + j}}}
		}
		err := b.log.RunInTx(b.Context(), b.DB, func(ctx context.Context, tx bun.Tx) error {
			return testapp.Second(b.log.AppendAll(ctx, tx, writes...))
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// runs runs a relay until stop, or the end of the test.
func (b *bank) runs(l relay.LogForwarder) (stop func()) {
	b.Helper()
	runner := testapp.Must[*relay.Runner](b.T)(relay.NewRunner(b.DB, b.Registry,
		relay.RunnerConfig{Log: b.log, Logger: slog.New(slog.DiscardHandler)}, l))
	return b.untilStop(runner.Run)
}

// receives runs a receiver until stop, or the end of the test.
func (b *bank) receives(r inbox.Receiver) (stop func()) {
	b.Helper()
	runner := testapp.Must[*inbox.Runner](b.T)(inbox.NewRunner(b.DB, b.Registry, b.Producer,
		inbox.RunnerConfig{Log: b.log, Logger: slog.New(slog.DiscardHandler)}, r))
	return b.untilStop(runner.Run)
}

func (b *bank) untilStop(run func(context.Context) error) (stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); err != nil {
			b.Errorf("run: got %v, want nil", err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	b.Cleanup(stop)
	return stop
}

// TestAStreamThatIsMadeAnew has lost all, as a server whose disk is replaced has: that is published again. What was purged of one
// that stays is not.
func TestAStreamThatIsMadeAnew(t *testing.T) {
	db := testdb.SQLite(t)
	at, appender := newShelf(t, brokers.StartNATS(t, 1), 1)
	from := newBank(t, db)
	publishes := func(events, stored int) {
		t.Helper()
		stop := from.runs(relay.NewLogForwarder("ledger", appender,
			relay.LogConfig{Source: "/bank", Routes: []relay.Route{relay.To[deposited]("")}}))
		from.deposit(events, 5)
		testapp.Poll(t, "all are there", 20*time.Second, 50*time.Millisecond, func() bool { return at.count(t) >= stored })
		stop()
		if n := at.count(t); n != stored {
			t.Errorf("got %d records, want %d", n, stored)
		}
	}
	publishes(50, 50)
	testapp.OK(t, at.stream.Purge(t.Context()))
	publishes(10, 10)
	testapp.OK(t, at.js.DeleteStream(t.Context(), at.name))
	var err error
	if at.stream, err = at.js.CreateStream(t.Context(),
		jetstream.StreamConfig{Name: at.name, Subjects: []string{at.name + ".>"}, AllowAtomicPublish: true}); err != nil {
		t.Fatal(err)
	}
	publishes(10, 70)
}

// TestTwoServicesWithARelayOfOneName publish the same message to one subject: the server drops neither as a duplicate.
func TestTwoServicesWithARelayOfOneName(t *testing.T) {
	const n = 20
	at := newPlace(t, brokers.StartNATS(t, 1), 1)
	for i, source := range []string{"/one", "/two"} {
		a := testapp.New(t, testdb.SQLite(t), relay.NewForwarder("out", at.publisher,
			relay.Config{Source: source, Routes: []relay.Route{relay.To[testapp.Order](at.name + ".placed")}}))
		a.ProduceMany(n)
		for j, row := range a.Pending() {
			a.Exec("UPDATE consumer_messages SET message_id = ? WHERE id = ?", uuid.UUID{15: byte(j + 1)}.String(), row.ID)
		}
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "all are published", a.Empty)
		r.MustStop()
		if got, want := at.count(t), (i+1)*n; got != want || len(a.Poisoned()) > 0 {
			t.Errorf("after %s: got %d records in the stream and %d poisoned, want %d and none", source, got, len(a.Poisoned()), want)
		}
	}
}

// loses is an appender whose answers are lost at times, as with a kill behind the append.
type loses struct{ broker.Publisher }

func (l loses) Last(ctx context.Context, shard int) (string, int64, uint64, error) {
	return l.Publisher.(broker.Appender).Last(ctx, shard)
}

func (l loses) Append(ctx context.Context, shard int, after uint64, records []broker.Record) (uint64, error) {
	revision, err := l.Publisher.(broker.Appender).Append(ctx, shard, after, records)
	if err == nil && rand.IntN(4) == 0 {
		err = fmt.Errorf("the answer is lost: it came too late")
	}
	return revision, err
}

// TestALogOverJetStreamIntoAnother: two processes relay one log, whose answers are lost at times and
// whose server is killed, and another service has it in its own: each event once, in the order of
// its stream.
func TestALogOverJetStreamIntoAnother(t *testing.T) {
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		servers := brokers.StartNATS(t, 1) // databases run beside each other, and each kills its server
		const n, streams, shards = 2000, 20, 4
		at, appender := newShelf(t, servers, 1)
		testapp.OK(t, testapp.Second(at.stream.CreateOrUpdateConsumer(t.Context(), allOfIt())))
		from := newBank(t, db)
		from.deposit(n/2, streams)
		gives := func() relay.LogForwarder {
			return relay.NewLogForwarder("ledger", loses{appender}, relay.LogConfig{Source: "/bank", Shards: shards, BatchSize: 20,
				AttemptDelay: time.Millisecond, MaxAttempts: 1000, PublishTimeout: timeout, Routes: []relay.Route{relay.To[deposited]("")}})
		}
		from.runs(gives())
		from.runs(gives())
		subscriber, err := amnats.NewSubscriber(at.nc, amnats.SubscriberConfig{Stream: at.name, Consumer: "all", Ordered: true})
		if err != nil {
			t.Fatal(err)
		}
		receiver := inbox.NewReceiver("from-bank", subscriber, inbox.AppendToLog("bank"), inbox.Accept[deposited]())
		to := newBank(t, testdb.SQLite(t), receiver.Consumer())
		to.receives(receiver)
		testapp.Eventually(t, "some are there", func() bool { return to.Count("SELECT count(*) FROM events") > 100 })
		testapp.OK(t, servers.Kill())
		from.deposit(n/2, streams)
		testapp.OK(t, servers.Start())
		testapp.Poll(t, "all are there", time.Minute, 20*time.Millisecond, func() bool { return to.Count("SELECT count(*) FROM events") >= n })
		if got := at.count(t); got != n {
			t.Errorf("got %d messages in the stream, want %d", got, n)
		}
		last := make(map[string]int)
		for e, err := range to.log.ReadLog(t.Context(), to.DB, 0, eventlog.Filter{}) {
			if err != nil {
				t.Fatal(err)
			}
			amount := e.Data.(deposited).Amount
			if want := last[e.Stream]; e.Version > 1 && amount != (want+streams)%(n/2) {
				t.Errorf("%s: got %d after %d", e.Stream, amount, want)
			}
			last[e.Stream] = amount
		}
	})
}
