package relay_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

type deposited struct {
	Amount int `json:"amount"`
}

func (deposited) PayloadType() string { return "account.deposited" }

// ledger is an application with an event log.
type ledger struct {
	*app
	log    *eventlog.Log
	events int
}

func newLedger(t *testing.T, db *bun.DB, consumers ...bus.Consumer) *ledger {
	t.Helper()
	a := testapp.New(t, db)
	types := testapp.Must[*eventlog.Types](t)(eventlog.NewTypes(eventlog.Event[opened](), eventlog.Event[deposited]()))
	a.Registry = testapp.Must[*bus.Registry](t)(bus.RegistryConfig{Events: types}.NewRegistry(consumers...))
	a.Producer = testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry, outbox.ProducerConfig{}))
	return &ledger{app: a, log: testapp.Must[*eventlog.Log](t)(eventlog.NewLog(a.Registry, a.Producer, eventlog.LogConfig{}))}
}

// deposit appends an event to each of so many streams, so many times.
func (l *ledger) deposit(streams, times int) {
	l.Helper()
	for range times {
		writes := make([]eventlog.Write, streams)
		for i := range writes {
			l.events++
			writes[i] = eventlog.Write{Stream: fmt.Sprintf("account-%d", i), Expected: eventlog.AnyVersion,
				Events: []bus.Payload{deposited{Amount: l.events}}}
		}
		l.inTx(func(ctx context.Context, tx bun.Tx) error { return testapp.Second(l.log.AppendAll(ctx, tx, writes...)) })
	}
}

func (l *ledger) inTx(fn func(ctx context.Context, tx bun.Tx) error) {
	l.Helper()
	testapp.OK(l, l.log.RunInTx(l.Context(), l.DB, fn))
}

// bank relays the log to a publisher.
func bank(pub broker.Publisher) relay.LogForwarder { return bankWith(pub, relay.LogConfig{}) }

// bankWith is bank with settings other than the source and the routes.
func bankWith(pub broker.Publisher, config relay.LogConfig) relay.LogForwarder {
	config.Source, config.Routes = "/bank", []relay.Route{relay.To[opened]("accounts"), relay.To[deposited]("accounts")}
	config.AttemptDelay = cmp.Or(config.AttemptDelay, 1)
	return relay.NewLogForwarder("ledger", pub, config)
}

// runs runs relays until the end of the test, or stop.
func (l *ledger) runs(relays ...relay.LogForwarder) (r *relay.Runner, stop func()) {
	l.Helper()
	return l.runsWith(relay.RunnerConfig{Logger: slog.New(slog.DiscardHandler)}, relays...)
}

func (l *ledger) runsWith(config relay.RunnerConfig, relays ...relay.LogForwarder) (r *relay.Runner, stop func()) {
	l.Helper()
	config.Log = l.log
	r = testapp.Must[*relay.Runner](l.T)(relay.NewRunner(l.DB, l.Registry, config, relays...))
	return r, untilStop(l.T, r.Run)
}

// receives runs receivers until the end of the test, or stop.
func (l *ledger) receives(receivers ...inbox.Receiver) (r *inbox.Runner, stop func()) {
	l.Helper()
	return l.receivesWith(inbox.RunnerConfig{Logger: slog.New(slog.DiscardHandler)}, receivers...)
}

func (l *ledger) receivesWith(config inbox.RunnerConfig, receivers ...inbox.Receiver) (r *inbox.Runner, stop func()) {
	l.Helper()
	config.Log = l.log
	r = testapp.Must[*inbox.Runner](l.T)(inbox.NewRunner(l.DB, l.Registry, l.Producer, config, receivers...))
	return r, untilStop(l.T, r.Run)
}

// done tells whether all shards of all relays have come to the end of the log.
func (l *ledger) done() bool {
	l.Helper()
	return l.Count("SELECT count(*) FROM event_subscriptions") > 0 &&
		l.Count("SELECT count(*) FROM event_subscriptions WHERE position < (SELECT count(*) FROM events)") == 0
}

func (l *ledger) stats(r *relay.Runner) relay.Stats {
	l.Helper()
	return testapp.Must[[]relay.Stats](l.T)(r.Stats(l.Context()))[0]
}

// TestAnUnavailableDestinationDelaysOnlyItsShard: what others publish meanwhile has nobody ask for it more often.
// Promise: relay-destination
func TestAnUnavailableDestinationDelaysOnlyItsShard(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		const streams = 20
		l, b := newLedger(t, db), newBroker()
		var tried atomic.Int64
		b.failWith(func(r broker.Record) error {
			if r.Destination == "account-0" {
				tried.Add(1)
				return broker.ErrUnavailable
			}
			return nil
		})
		began := time.Now()
		r, _ := l.runs(relay.NewLogForwarder("ledger", b, relay.LogConfig{Source: "/bank", Shards: 4,
			Routes: []relay.Route{relay.To[opened]("accounts"),
				relay.To[deposited]("", relay.DestinationFunc(func(m *bus.Message, _ deposited) (string, error) { return m.Event.Stream, nil }))}}))
		last := func() (round map[string]int) {
			round = make(map[string]int)
			for _, record := range b.all() {
				round[record.Key]++
			}
			return round
		}
		const rounds = 50
		var elsewhere map[string]int // the streams of other shards
		for i := 1; i <= rounds; i++ {
			l.deposit(streams, 1)
			testapp.Eventually(t, "the other shards go on", func() bool {
				elsewhere = last()
				maps.DeleteFunc(elsewhere, func(_ string, n int) bool { return n < i })
				return len(elsewhere) > streams/3 && tried.Load() > 0
			})
		}
		if n, most := tried.Load(), 2+int64(time.Since(began)/time.Second); n > most {
			t.Errorf("got %d tries, want one a second at most: %d", n, most)
		}
		if s := l.stats(r); s.OpenedAt.IsZero() || s.Halted > 0 {
			t.Errorf("got %+v, want it to say that it waits", s)
		}
		b.failWith(nil)
		testapp.Eventually(t, "all are published", func() bool { return len(last()) == streams && l.done() })
	})
}

// TestABrokerThatHasNothingLeft: what it has lost is published again, and what it has removed since it was old is not.
func TestABrokerThatHasNothingLeft(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{true, false} {
		t.Run(map[bool]string{true: "lost", false: "removed"}[lost], func(t *testing.T) {
			t.Parallel()
			testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
				l, s := newLedger(t, db), newShelf()
				l.deposit(5, 10)
				_, stop := l.runs(bankWith(s, relay.LogConfig{Shards: 2}))
				testapp.Eventually(t, "all are there", func() bool { return len(s.all()) == 50 && l.done() })
				stop()
				s.empty(lost)
				l.runs(bankWith(s, relay.LogConfig{Shards: 2}))
				l.deposit(5, 2)
				want := 10
				if lost {
					want += 50
				}
				testapp.Eventually(t, "what is new is there", func() bool { return len(s.all()) >= want && l.done() })
				if n := len(s.all()); n != want {
					t.Errorf("got %d records, want %d", n, want)
				}
				if wrong := s.disorder(l.events); lost && wrong != "" {
					t.Error(wrong)
				}
			})
		})
	}
}

// TestADeployThatAddsATypeToALogForwarder: while processes of two releases run, the older one passes over no event of the type. Nor
// does it when it is alone again, until somebody says so.
// Promise: relay-types
func TestADeployThatAddsATypeToALogForwarder(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		s, l := newShelf(), newLedger(t, db)
		route := func(routes ...relay.Route) relay.LogForwarder {
			return relay.NewLogForwarder("ledger", s, relay.LogConfig{Source: "/bank", Routes: append(routes, relay.To[opened]("accounts")),
				AttemptDelay: 1})
		}
		open := func(stream string) {
			l.inTx(func(ctx context.Context, tx bun.Tx) error {
				return testapp.Second(l.log.Append(ctx, tx, stream, eventlog.AnyVersion, opened{}))
			})
		}
		published := func() (kinds map[string]int) {
			kinds = make(map[string]int)
			for _, r := range s.all() {
				kinds[r.Attributes["type"]]++
			}
			return kinds
		}
		wait := func(what string, openings, deposits int) {
			t.Helper()
			testapp.Eventually(t, what, func() bool {
				kinds := published()
				return kinds["account.opened"] == openings && kinds["account.deposited"] == deposits
			})
		}
		older, stopOlder := l.runs(route())
		open("account-0")
		wait("the older one relays", 1, 0)
		newer, stopNewer := l.runs(route(relay.To[deposited]("accounts"))) // the older one has the lease
		testapp.Eventually(t, "the newer one runs", func() bool { return newer.Health().Ready })
		l.deposit(1, 10)
		open("account-1")
		wait("all arrive while both run", 2, 10)
		stopNewer()
		l.deposit(1, 3)
		open("account-2")
		testapp.Eventually(t, "the older one says what it waits for",
			func() bool { return strings.Contains(l.stats(older).LastError, `"account.deposited"`) })
		wait("nothing more", 2, 10)
		_, stopNewer = l.runs(route(relay.To[deposited]("accounts")))
		wait("the rest arrives once it is there again", 3, 13)
		stopNewer()
		l.deposit(1, 1)
		open("account-3")
		testapp.Eventually(t, "the older one waits again",
			func() bool { return strings.Contains(l.stats(older).LastError, `"account.deposited"`) })
		testapp.Must[int](t)(older.Resume(t.Context(), "ledger"))
		wait("without the type it goes on", 4, 13)
		stopOlder()
		if wrong := s.refused(); wrong > 0 {
			t.Errorf("stale appends: got %d, want none", wrong)
		}
	})
}

func TestTheLogLeavesInOrder(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d shards", shards), func(t *testing.T) {
			t.Parallel()
			testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
				l, s := newLedger(t, db), newShelf()
				l.deposit(20, 10)
				l.runs(bankWith(s, relay.LogConfig{Shards: shards, BatchSize: 7}))
				l.deposit(20, 10)
				testapp.Eventually(t, "all is published", func() bool { return l.done() })
				if wrong := s.disorder(l.events); wrong != "" {
					t.Error(wrong)
				}
				if n := len(s.shards); n != shards {
					t.Errorf("got records in %d shards, want %d", n, shards)
				}
				record := s.all()[0]
				if record.Key == "" || record.Attributes["subject"] != record.Key || record.Attributes["type"] != "account.deposited" ||
					len(record.Attributes["sequence"]) != 19 {
					t.Errorf("got %+v, want an event with its stream and position", record)
				}
			})
		})
	}
}

// TestAKillBetweenAppendAndMove has the answer of every third append be lost with the process.
func TestAKillBetweenAppendAndMove(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l, s := newLedger(t, db), newShelf()
		l.deposit(10, 20)
		for range 10 {
			lost := make(chan struct{})
			appends := 0
			s.after = func(int, []broker.Record) error {
				if appends++; appends < 3 {
					return nil
				}
				if appends == 3 {
					close(lost)
				}
				return fmt.Errorf("killed: %w", broker.ErrUnavailable)
			}
			_, stop := l.runs(bankWith(s, relay.LogConfig{BatchSize: 5}))
			<-lost
			stop()
		}
		s.after = nil
		l.runs(bank(s))
		testapp.Eventually(t, "all is published", func() bool { return l.done() })
		if wrong := s.disorder(l.events); wrong != "" {
			t.Error(wrong)
		}
	})
}

// everyNth fails at every nth call.
func everyNth(n int64) func() error {
	var calls atomic.Int64
	return func() error {
		if calls.Add(1)%n == 0 {
			return errors.New("not this time")
		}
		return nil
	}
}

// TestAnAppendThatFailsLeavesNoGap: the checkpoint moves only behind what the broker has.
func TestAnAppendThatFailsLeavesNoGap(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l, s := newLedger(t, db), newShelf()
		l.deposit(10, 20)
		fails := everyNth(3)
		s.before = func(int, []broker.Record) error { return fails() }
		l.runs(bankWith(s, relay.LogConfig{BatchSize: 5}))
		testapp.Eventually(t, "all is published", func() bool { return l.done() })
		if wrong := s.disorder(l.events); wrong != "" {
			t.Error(wrong)
		}
	})
}

// TestAZombieIsFenced has a process hang in an append until another one has taken its lease and
// appended: what the first then appends is refused.
func TestAZombieIsFenced(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l, s := newLedger(t, db), newShelf()
		l.deposit(10, 20)
		hangs, goes := make(chan struct{}), make(chan struct{})
		goOn := sync.OnceFunc(func() { close(goes) })
		var hung atomic.Bool
		s.before = func(int, []broker.Record) error {
			if hung.CompareAndSwap(false, true) {
				close(hangs)
				<-goes
			}
			return nil
		}
		l.runs(bankWith(s, relay.LogConfig{BatchSize: 5}))
		t.Cleanup(goOn) // before the end of the runner, which waits for it
		<-hangs
		l.Exec("UPDATE event_subscriptions SET leased_until = " + testapp.In(db, -1)) // its time is over
		l.runs(bankWith(s, relay.LogConfig{BatchSize: 5}))
		testapp.Eventually(t, "the other one publishes", func() bool { return len(s.all()) > 0 })
		goOn()
		testapp.Eventually(t, "all is published", func() bool { return l.done() && s.refused() > 0 })
		l.deposit(10, 1)
		testapp.Eventually(t, "what came later is published", func() bool { return l.done() })
		if wrong := s.disorder(l.events); wrong != "" {
			t.Error(wrong)
		}
	})
}

// TestAPublisherThatIsNoAppender: the relay goes on behind the last record before the first that
// failed, so that first appearances are in order.
func TestAPublisherThatIsNoAppender(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l, b := newLedger(t, db), newBroker()
		l.deposit(10, 10)
		fails := everyNth(7)
		b.failWith(func(broker.Record) error { return fails() })
		l.runs(bankWith(b, relay.LogConfig{BatchSize: 20}))
		testapp.Eventually(t, "all is published", func() bool { return l.done() })
		first, seen := []broker.Record(nil), make(map[string]bool)
		for _, record := range b.all() {
			if !seen[record.ID] {
				seen[record.ID], first = true, append(first, record)
			}
		}
		// What comes behind a record that failed is there before it, and again after it.
		if len(first) != l.events {
			t.Errorf("got %d events, want %d", len(first), l.events)
		}
		again := b.all()[len(b.all())-1]
		if want := fmt.Sprintf("%019d", l.events); again.Attributes["sequence"] != want {
			t.Errorf("the last record: got sequence %s, want %s", again.Attributes["sequence"], want)
		}
	})
}

// sequencer is a broker that takes one record after the other, and few in the time that it has.
type sequencer struct{ *memory }

func (s sequencer) PublishInOrder(ctx context.Context, records []broker.Record) (n int, err error) {
	for n := range records {
		if n == 3 {
			return n, nil
		}
		if err := s.Publish(ctx, records[n:n+1])[0]; err != nil {
			return n, err
		}
	}
	return len(records), nil
}

// TestNothingOvertakesWhatFailed: of a publisher that can keep the order each event is there before those behind
// it, and once, although some fail.
func TestNothingOvertakesWhatFailed(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l, b := newLedger(t, db), newBroker()
		l.deposit(10, 10)
		fails := everyNth(7)
		b.failWith(func(broker.Record) error { return fails() })
		l.runs(bankWith(sequencer{b}, relay.LogConfig{BatchSize: 20}))
		testapp.Eventually(t, "all is published", func() bool { return l.done() })
		if wrong := disorder(map[int][]broker.Record{0: b.all()}, l.events); wrong != "" {
			t.Error(wrong)
		}
	})
}

// TestAStreamThatIsErasedIsRelayed: as a record without a body, behind those that had left.
func TestAStreamThatIsErasedIsRelayed(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l, s := newLedger(t, db), newShelf()
		l.deposit(2, 1)
		l.inTx(func(ctx context.Context, tx bun.Tx) error { return l.log.Tombstone(ctx, tx, "account-1") })
		l.runs(bank(s))
		testapp.Eventually(t, "all is published", func() bool { return l.done() })
		all := s.all()
		if len(all) != 2 || all[0].Key != "account-0" || all[1].Key != "account-1" || all[1].Body != nil ||
			all[1].Attributes["type"] != "asyncmonolith.tombstoned" {
			t.Errorf("got %+v, want the other stream, and a record without a body", all)
		}
	})
}

// TestWhatCannotBePublished: halts its shard until somebody resumes it, or is put aside.
func TestWhatCannotBePublished(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l, s := newLedger(t, db), newShelf()
		l.deposit(1, 20)
		refuse := true
		var mu sync.Mutex
		s.before = func(_ int, records []broker.Record) error {
			mu.Lock()
			defer mu.Unlock()
			for _, record := range records {
				if refuse && strings.Contains(string(record.Body), `:7}`) {
					return fmt.Errorf("7 is too large: %w", broker.ErrRejected)
				}
			}
			return nil
		}
		r, stop := l.runs(bank(s))
		testapp.Eventually(t, "it halts", func() bool { return l.stats(r).Halted == 1 })
		if n, stats := len(s.all()), l.stats(r); n != 6 || !strings.Contains(stats.LastError, "7 is too large") {
			t.Errorf("got %d records and %+v, want the 6 before it", n, stats)
		}
		stop()
		r, stop = l.runs(bankWith(s, relay.LogConfig{ParkFailures: true}))
		if n, err := r.Resume(t.Context(), "ledger"); n != 1 || err != nil {
			t.Errorf("resume: got %d and %v, want 1", n, err)
		}
		testapp.Eventually(t, "all else is published", func() bool { return l.done() })
		parked := testapp.Must[[]relay.Parked](t)(r.Parked(t.Context(), "ledger", 10))
		if len(parked) != 1 || parked[0].Position != 7 || !strings.Contains(parked[0].Reason, "7 is too large") ||
			l.stats(r).Parked != 1 || len(s.all()) != 19 {
			t.Errorf("got %+v, and %d records, want one event parked", parked, len(s.all()))
		}
		stop()
		mu.Lock()
		refuse = false
		mu.Unlock()
		r, _ = l.runs(bank(s))
		testapp.OK(t, r.Rewind(t.Context(), "ledger"))
		testapp.Eventually(t, "all is published again", func() bool { return l.done() && len(s.all()) == 39 })
		if _, err := r.Resume(t.Context(), "other"); !errors.Is(err, relay.ErrUnknownForwarder) {
			t.Errorf("resume another: got %v, want ErrUnknown", err)
		}
	})
}

// TestALogForwarderWhoseBrokerIsUnavailable writes nothing, looks seldom, and goes on as soon as its circuit closes.
func TestALogForwarderWhoseBrokerIsUnavailable(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l, s, circuit := newLedger(t, db), newShelf(), new(outbox.Circuit)
		l.deposit(10, 10)
		var away atomic.Bool
		var calls atomic.Int64
		away.Store(true)
		s.before = func(int, []broker.Record) error {
			if calls.Add(1); away.Load() {
				return fmt.Errorf("no leader: %w", broker.ErrUnavailable)
			}
			return nil
		}
		r, _ := l.runs(bankWith(s, relay.LogConfig{Circuit: circuit}))
		testapp.Eventually(t, "it has tried three times, and the circuit is open again", func() bool {
			_, _, open := circuit.Tripped() // the broker says where it stands, which closes it before each
			return calls.Load() >= 3 && open
		})
		if n := l.Count("SELECT count(*) FROM event_subscriptions WHERE position = 0 AND attempts = 0 AND last_error IS NULL"); n != 1 {
			t.Error("something was written of the outage")
		}
		if stats := l.stats(r); stats.OpenedAt.IsZero() || stats.Reason == nil || stats.Halted != 0 {
			t.Errorf("got %+v, want a circuit that is open", stats)
		}
		away.Store(false)
		circuit.Reset()
		testapp.Eventually(t, "all is published", l.done)
		if wrong := s.disorder(l.events); wrong != "" || calls.Load() > 4 {
			t.Errorf("got %s after %d appends, want all with the fourth", wrong, calls.Load())
		}
	})
}

// TestAShardThatWasElsewhere: how a shard has failed before another process had it says nothing of today. It is told of again that
// the shard waits, and whoever is overtaken tries again at once, as ever.
func TestAShardThatWasElsewhere(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		var refused, calls atomic.Int64
		l, s := newLedger(t, db.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) {
			if strings.Contains(query, "leased_until IS NULL OR") { // it wants the lease
				refused.Add(1)
			}
		}))), newShelf()
		l.deposit(1, 1)
		took, taken := make(chan struct{}), make(chan struct{})
		missing, overtaken := fmt.Errorf("no stream: %w", broker.ErrNoDestination), fmt.Errorf("odd: %w", broker.ErrSequenceConflict)
		var began time.Time
		var lasted time.Duration
		s.before = func(int, []broker.Record) error {
			switch n := calls.Add(1); n {
			case 1, 5: // the lease is over
				took <- struct{}{}
				<-taken
				return map[int64]error{1: missing, 5: overtaken}[n]
			case 2:
				return missing
			case 6:
				began = time.Now()
			case 9:
				lasted = time.Since(began)
				return nil
			}
			return overtaken
		}
		lines := new(testapp.Lines)
		l.runsWith(relay.RunnerConfig{Logger: lines.Logger()}, bank(s))
		for range 2 {
			<-took
			l.Exec("UPDATE event_subscriptions SET owner = 'another', leased_until = " + testapp.In(db, time.Minute))
			refused.Store(0)
			taken <- struct{}{}
			testapp.Eventually(t, "it has asked for the lease in vain", func() bool { return refused.Load() >= 2 })
			l.Exec("UPDATE event_subscriptions SET leased_until = NULL")
		}
		testapp.Eventually(t, "all is published", l.done)
		if n := strings.Count(lines.String(), "log forwarder waits for the broker"); n != 2 {
			t.Errorf("lines that it waits: got %d, want one of each time", n)
		}
		if lasted >= time.Second {
			t.Errorf("overtaken three times: it went on after %s, want at once", lasted)
		}
	})
}

func TestMistakesOfLogAreReportedTogether(t *testing.T) {
	t.Parallel()
	l := newLedger(t, testdb.SQLite(t))
	config := func(change func(c *relay.LogConfig)) relay.LogConfig {
		c := relay.LogConfig{Source: "/bank", Routes: []relay.Route{relay.To[opened]("")}}
		change(&c)
		return c
	}
	whole := config(func(*relay.LogConfig) {})
	for want, log := range map[string]relay.LogForwarder{
		"by relay.NewLogForwarder, not as a zero": {},
		"the publisher is nil":                    relay.NewLogForwarder("l", nil, whole),
		`name ""`:                                 relay.NewLogForwarder("", newShelf(), whole),
		`Source ""`:                               relay.NewLogForwarder("l", newShelf(), config(func(c *relay.LogConfig) { c.Source = "" })),
		"Config.Routes is empty":                  relay.NewLogForwarder("l", newShelf(), config(func(c *relay.LogConfig) { c.Routes = nil })),
		"the destination is empty":                relay.NewLogForwarder("l", newBroker(), whole),
		"erased streams need a route":             relay.NewLogForwarder("l", newBroker(), whole),
		"Shards 65: 1 to 64":                      relay.NewLogForwarder("l", newShelf(), config(func(c *relay.LogConfig) { c.Shards = 65 })),
		"BatchSize 1001: 1 to 1000": relay.NewLogForwarder("l", newShelf(),
			config(func(c *relay.LogConfig) { c.BatchSize = 1001 })),
		"MaxAttempts -1: 1 or more":    relay.NewLogForwarder("l", newShelf(), config(func(c *relay.LogConfig) { c.MaxAttempts = -1 })),
		"AttemptDelay -1ns: 0 or more": relay.NewLogForwarder("l", newShelf(), config(func(c *relay.LogConfig) { c.AttemptDelay = -1 })),
		"by relay.To, not as a zero": relay.NewLogForwarder("l", newShelf(),
			config(func(c *relay.LogConfig) { c.Routes = make([]relay.Route, 1) })),
		`event "order.placed" is unknown`: relay.NewLogForwarder("l", newShelf(),
			config(func(c *relay.LogConfig) { c.Routes = []relay.Route{relay.To[order]("")} })),
		`log forwarder "ledger" is given twice`: bank(newShelf()),
	} {
		_, err := relay.NewRunner(l.DB, l.Registry, relay.RunnerConfig{Log: l.log}, log, log)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := relay.NewRunner(l.DB, l.Registry, relay.RunnerConfig{}, bank(newShelf())); err == nil ||
		!strings.Contains(err.Error(), "RunnerConfig.Log") {
		t.Errorf("without a log: got %v, want an error", err)
	}
	log := bank(newShelf())
	testapp.Must[*relay.Runner](t)(relay.NewRunner(l.DB, l.Registry, relay.RunnerConfig{Log: l.log}, log))
	if _, err := relay.NewRunner(l.DB, l.Registry, relay.RunnerConfig{Log: l.log}, log); err == nil ||
		!strings.Contains(err.Error(), "another runner") {
		t.Errorf("a second runner: got %v, want an error", err)
	}
}

// TestALogForwarderThatDoesNotFit: what is stored of a relay has them, and an older database has newer records.
func TestALogForwarderThatDoesNotFit(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t, testdb.SQLite(t)), newShelf()
	l.deposit(10, 1)
	_, stop := l.runs(bankWith(s, relay.LogConfig{Shards: 2}))
	testapp.Eventually(t, "all is published", l.done)
	stop()
	r := testapp.Must[*relay.Runner](t)(relay.NewRunner(l.DB, l.Registry, relay.RunnerConfig{Log: l.log}, bank(s)))
	if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "Shards 1: the forwarder already has 2") {
		t.Errorf("other shards: got %v, want an error", err)
	}
	older := newLedger(t, testdb.SQLite(t))
	older.deposit(5, 1)
	r, _ = older.runs(bankWith(s, relay.LogConfig{Shards: 2, AttemptDelay: time.Hour}))
	testapp.Eventually(t, "it halts, or is to be tried again", func() bool { return older.stats(r).LastError != "" })
	if stats := older.stats(r); stats.Halted == 0 {
		t.Errorf("got %+v, want it halted at once: to try again does not help", stats)
	} else if !strings.Contains(stats.LastError, "an older backup?") {
		t.Errorf("got %q, want that the database may be an older one", stats.LastError)
	}
}
