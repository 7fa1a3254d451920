package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// TestALogForwarderWhosePublisherHangs: calls that ignore their time are given up, so that its shard and
// Run go on; few of them at a time, and once they return all is published, once.
func TestALogForwarderWhosePublisherHangs(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l, s, circuit := newLedger(t, db), newShelf(), new(outbox.Circuit)
		l.deposit(10, 2)
		goes := make(chan struct{})
		goOn := sync.OnceFunc(func() { close(goes) })
		var hanging atomic.Int64
		hangs := atomic.Bool{}
		hangs.Store(true)
		s.before = func(int, []broker.Record) error {
			if !hangs.Load() {
				return nil
			}
			hanging.Add(1)
			defer hanging.Add(-1)
			<-goes
			return broker.ErrUnavailable
		}
		r, stop := l.runs(bankWith(s, relay.LogConfig{PublishTimeout: time.Millisecond, Circuit: circuit}))
		t.Cleanup(goOn) // before the end of the runner
		testapp.Eventually(t, "the first is given up", func() bool { _, _, open := circuit.Tripped(); return open })
		hangs.Store(false)
		circuit.Reset()
		testapp.Eventually(t, "the others are published", func() bool { return l.done() })

		hangs.Store(true)
		l.deposit(10, 2)
		testapp.Eventually(t, "all that may hang do", func() bool {
			// A reset before the look could be seen each time before the next call.
			if strings.Contains(fmt.Sprint(l.stats(r).Reason), "the publisher: 4 calls have not returned") || hanging.Load() > 4 {
				return true
			}
			circuit.Reset()
			return false
		})
		if n := hanging.Load(); n != 4 {
			t.Errorf("got %d calls that hang, want 4", n)
		}
		stop()
		hangs.Store(false)
		l.runs(bank(s))
		testapp.Eventually(t, "another process publishes the rest", func() bool { return l.done() })
		goOn()
		testapp.Eventually(t, "they have returned", func() bool { return hanging.Load() == 0 })
		if wrong := s.disorder(l.events); wrong != "" {
			t.Error(wrong)
		}
	})
}

// TestAPublisherThatPanics does not take the process with it: its shard halts like after any error.
func TestAPublisherThatPanics(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l, s := newLedger(t, db), newShelf()
		l.deposit(1, 1)
		s.before = func(int, []broker.Record) error { panic("no more") }
		r, _ := l.runs(bankWith(s, relay.LogConfig{MaxAttempts: 2}))
		testapp.Eventually(t, "it halts", func() bool { return l.stats(r).Halted == 1 })
		if stats := l.stats(r); !strings.Contains(stats.LastError, "no more") {
			t.Errorf("got %q, want what it panicked with", stats.LastError)
		}
	})
}

// TestPublishTelemetryThatPanics is like a publisher that does.
func TestPublishTelemetryThatPanics(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l := newLedger(t, db)
		l.deposit(1, 1)
		panics := func(bus.ProduceFunc) bus.ProduceFunc {
			return func(context.Context, *bus.Batch) error { panic("no span") }
		}
		config := relay.RunnerConfig{Logger: slog.New(slog.DiscardHandler), Telemetry: panics}
		r, _ := l.runsWith(config, bankWith(newShelf(), relay.LogConfig{MaxAttempts: 2}))
		testapp.Eventually(t, "it halts", func() bool { return l.stats(r).Halted == 1 })
		if stats := l.stats(r); !strings.Contains(stats.LastError, "no span") {
			t.Errorf("got %q, want what it panicked with", stats.LastError)
		}
	})
}

// TestTheTraceOfAnEvent: what consumes it in the other service is a child of what appended it, and the
// batches in which it left and arrived link to that.
func TestTheTraceOfAnEvent(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		one, two, b := newTraced(t), newTraced(t), newBroker()
		from := newLedger(t, testdb.SQLite(t))
		from.Producer = one.producer(from.app)
		from.log = testapp.Must[*eventlog.Log](t)(eventlog.NewLog(from.Registry, from.Producer, eventlog.LogConfig{}))
		from.deposit(1, 1)
		receiver := intoLog(b.subscribe())
		to := newLedger(t, db, receiver.Consumer(), bus.Consume("tell", func(context.Context, deposited) error { return nil }))
		from.runsWith(relay.RunnerConfig{Telemetry: one.Publish()}, bank(b))
		to.receivesWith(inbox.RunnerConfig{Telemetry: two.Receive()}, receiver)
		to.Start(two.config())
		created, published, received, consumed := one.span(t, "send "), one.span(t, "publish ledger"), two.span(t,
			"receive from-bank"), two.span(t, "process ")
		if parent := consumed.Parent(); parent.TraceID() != created.SpanContext().TraceID() || parent.SpanID() != created.SpanContext().SpanID() {
			t.Errorf("consumed: got parent %s, want what appended it, %s", parent.SpanID(), created.SpanContext().SpanID())
		}
		for _, batch := range []sdktrace.ReadOnlySpan{published, received} {
			if links := batch.Links(); len(links) != 1 || links[0].SpanContext.SpanID() != created.SpanContext().SpanID() ||
				batch.Parent().IsValid() {
				t.Errorf("%s: got links %+v, want one to what appended it", batch.Name(), links)
			}
		}
		if kind := published.SpanKind(); kind != trace.SpanKindClient {
			t.Errorf("%s: got a span of kind %s, want client", published.Name(), kind)
		}
	})
}

// stalls is a shelf whose answers to the second question, where it stands, and later ones wait.
type stalls struct {
	*shelf
	asked atomic.Int64
	goOn  chan struct{}
}

// Last implements broker.Appender.
func (s *stalls) Last(ctx context.Context, shard int) (id string, position int64, revision uint64, err error) {
	if s.asked.Add(1) > 1 {
		<-s.goOn
	}
	return s.shelf.Last(ctx, shard)
}

// TestAProcessBehindTheCheckpointHaltsNothing: a process that goes on after its lease sees records of another, which has
// not moved the checkpoint yet, of positions that it knows nothing of. That is no other database.
func TestAProcessBehindTheCheckpointHaltsNothing(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		from, s := newLedger(t, db), &stalls{shelf: newShelf(), goOn: make(chan struct{})}
		from.deposit(1, 1)
		r, _ := from.runs(bankWith(s, relay.LogConfig{PublishTimeout: time.Minute}))
		testapp.Eventually(t, "it asks where the broker stands", func() bool { return s.asked.Load() == 2 })
		from.Exec("UPDATE event_subscriptions SET owner = 'another'")
		from.deposit(1, 1)
		all := from.amounts()["account-0"] // which numbers them
		for i := range all {
			if _, err := s.append(0, uint64(i), []broker.Record{{ID: fmt.Sprintf("%d/bank/ledger", i),
				Attributes: map[string]string{"sequence": fmt.Sprint(i + 1)}}}); err != nil {
				t.Fatal(err)
			}
		}
		close(s.goOn)
		from.Exec("UPDATE event_subscriptions SET leased_until = NULL")
		testapp.Eventually(t, "it goes on, or has halted", func() bool { return from.done() || from.stats(r).Halted > 0 })
		if stats := from.stats(r); stats.Halted != 0 || len(s.all()) != 2 {
			t.Errorf("got %+v and %d records, want none halted, and nothing appended again", stats, len(s.all()))
		}
	})
}

// quiet is a runner's configuration without a log.
func quiet(log *eventlog.Log) relay.RunnerConfig {
	return relay.RunnerConfig{Log: log, Logger: slog.New(slog.DiscardHandler)}
}

// mustEnd runs a part, waits until inside, stops it, and wants Run to return within 30 s. Then it lets go what hangs.
func mustEnd(t *testing.T, run func(context.Context) error, inside func() bool, free func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	testapp.Eventually(t, "the function is called", inside)
	cancel()
	select {
	case <-ended:
		free()
	case <-time.After(30 * time.Second):
		t.Error("Run has not returned 30 s after its context ended")
		free()
		<-ended
	}
}

// TestARouteThatHangsInALogForwarder does not keep Run from ending.
func TestARouteThatHangsInALogForwarder(t *testing.T) {
	t.Parallel()
	l := newLedger(t, testdb.SQLite(t))
	l.deposit(1, 1)
	var calls atomic.Int64
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	forwarder := relay.NewLogForwarder("ledger", newBroker(), relay.LogConfig{Source: "/bank",
		Routes: []relay.Route{relay.To[opened]("accounts"), relay.To[deposited]("accounts",
			relay.MapPayload(func(d deposited) (deposited, error) { calls.Add(1); <-release; return d, nil }))}})
	r := testapp.Must[*relay.Runner](t)(relay.NewRunner(l.DB, l.Registry, quiet(l.log), forwarder))
	mustEnd(t, r.Run, func() bool { return calls.Load() > 0 }, free)
}

// hanging is deposited with an upcaster that calls the function of its context.
type hanging struct{}

type hangKey struct{}

func (hanging) PayloadType() string { return "account.deposited" }

func (hanging) Upcasters() []bus.Upcaster {
	return []bus.Upcaster{func(ctx context.Context, text []byte) ([]byte, error) {
		ctx.Value(hangKey{}).(func())()
		return text, nil
	}}
}

// TestAnUpcasterThatHangsInALogForwarder does not keep Run from ending.
func TestAnUpcasterThatHangsInALogForwarder(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	l := newLedger(t, db)
	l.deposit(1, 1)
	var calls atomic.Int64
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	types := testapp.Must[*eventlog.Types](t)(eventlog.NewTypes(eventlog.Event[opened](), eventlog.Event[hanging]()))
	registry := testapp.Must[*bus.Registry](t)(bus.RegistryConfig{Events: types}.NewRegistry())
	producer := testapp.Must[*outbox.Producer](t)(outbox.NewProducer(registry, outbox.ProducerConfig{}))
	log := testapp.Must[*eventlog.Log](t)(eventlog.NewLog(registry, producer, eventlog.LogConfig{}))
	config := relay.LogConfig{Source: "/bank", AttemptDelay: 1, Routes: []relay.Route{relay.To[hanging]("accounts")}}
	forwarder := relay.NewLogForwarder("ledger", newBroker(), config)
	r := testapp.Must[*relay.Runner](t)(relay.NewRunner(db, registry, quiet(log), forwarder))
	hang := func() { calls.Add(1); <-release }
	run := func(ctx context.Context) error { return r.Run(context.WithValue(ctx, hangKey{}, hang)) }
	mustEnd(t, run, func() bool { return calls.Load() > 0 }, free)
}

// TestAMapPayloadThatTimesOut: it looks something up, under a timeout of its own, which passes for one event. That is a failed attempt
// of this event, and not the broker: in the end it is parked, and other streams go on meanwhile.
func TestAMapPayloadThatTimesOut(t *testing.T) {
	t.Parallel()
	b := newBroker()
	l := newLedger(t, testdb.SQLite(t))
	l.deposit(8, 2) // amounts 1 to 16
	config := relay.LogConfig{Source: "/bank", AttemptDelay: 1, MaxAttempts: 2, ParkFailures: true, Shards: 4,
		Routes: []relay.Route{relay.To[opened]("accounts"), relay.To[deposited]("accounts",
			relay.MapPayload(func(d deposited) (deposited, error) {
				if d.Amount == 1 {
					return d, fmt.Errorf("look up the rate: %w", context.DeadlineExceeded)
				}
				return d, nil
			}))}}
	r, _ := l.runs(relay.NewLogForwarder("ledger", b, config))
	testapp.Eventually(t, "all is published or parked", l.done)
	if got := l.stats(r); len(b.all()) != 15 || got.Parked != 1 || !got.OpenedAt.IsZero() {
		t.Errorf("%d of 16 events are published, want 15, one parked and a closed circuit: %+v", len(b.all()), got)
	}
}
