package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// TestFunctionsThatHang: a Map and a subscriber that do not return are given up, and seen. The receiver beside goes on, Run returns,
// and once they have returned the next one receives what there is.
func TestFunctionsThatHang(t *testing.T) {
	for _, what := range []string{"a Map", "a subscriber"} {
		t.Run(what, func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				var calls atomic.Int64
				release := make(chan struct{})
				free := sync.OnceFunc(func() { close(release) })
				defer free()
				b := newBroker()
				b.put(event("1", order{ID: "1"}))
				if what == "a Map" { // which is called twice for each of two, and then no more
					b.put(event("2", order{ID: "2"}))
					b.put(event("3", order{ID: "3"}))
				}
				sub, paused := b.subscribe(), "not returned"
				hangs := inbox.NewReceiver("hangs", sub, inbox.Accept[order](), inbox.MapRecord(func(r broker.Record) (broker.Record, error) {
					calls.Add(1)
					<-release
					return r, nil
				}))
				if what == "a subscriber" {
					paused = "the subscriber has not returned"
					hangs = inbox.NewReceiver("hangs", subscriber(func(ctx context.Context, fn func(context.Context, []broker.Record) error) error {
						calls.Add(1)
						<-release
						if ctx.Err() == nil {
							return sub.Subscribe(ctx, fn)
						}
						if fn(context.WithoutCancel(ctx), []broker.Record{event("1", order{ID: "1"})}) == nil { // nobody waits for it any more
							t.Error("a batch of a subscriber that was given up: got it taken over")
						}
						return nil
					}), inbox.Accept[order]())
				}
				well := inbox.NewReceiver("well", b.subscribe(), inbox.Accept[order]())
				a := newApp(testapp.Consumed("ship"), hangs.Consumer(), well.Consumer())
				runner := testapp.Must[*inbox.Runner](t)(inbox.NewRunner(a.DB, a.Registry, a.Producer,
					inbox.RunnerConfig{Logger: slog.New(slog.DiscardHandler)}, hangs, well))
				run := func() (stop func()) {
					ctx, cancel := context.WithCancel(ctx)
					ended := make(chan error, 1)
					go func() { ended <- runner.Run(ctx) }()
					return func() {
						cancel()
						select {
						case err := <-ended:
							if err != nil {
								t.Errorf("run: got %v, want nil", err)
							}
						case <-time.After(20 * time.Second):
							t.Error("run: it has not returned 20 s after its end")
							free()
							<-ended
						}
					}
				}
				stats := func() inbox.Stats { return testapp.Must[[]inbox.Stats](t)(runner.Stats(ctx))[0] }
				stop := run()
				<-time.After(10 * time.Minute)
				if all := testapp.Must[[]inbox.Stats](t)(runner.Stats(ctx)); int(all[1].Accepted) != len(b.all()) || all[1].Paused != "" {
					t.Errorf("the other receiver: got %+v, want it to receive", all[1])
				}
				if what == "a Map" {
					if s := stats(); !strings.Contains(s.Paused, paused) || s.Accepted != 0 {
						t.Errorf("while it hangs: got %+v, want the reason", s)
					}
					if n := calls.Load(); n != 4 {
						t.Errorf("got %d calls that hang, want 4", n)
					}
				}
				stop()
				if s := stats(); !strings.Contains(s.Paused, paused) {
					t.Errorf("after the end: got %+v, want the reason", s)
				}
				stop = run()
				<-time.After(time.Minute)
				if s := stats(); !strings.Contains(s.Paused, paused) || s.Accepted != 0 {
					t.Errorf("while it still hangs: got %+v, want the reason", s)
				}
				free()
				testapp.Sooner(t, "it receives again", func() bool { return stats().Accepted == 1 && stats().Paused == "" })
				stop()
			})
		})
	}
}

// TestARecordAtWhichMapHangsIsParked, at its second delivery, and holds up no others.
// Promise: relay-parked
func TestARecordAtWhichMapHangsIsParked(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		release := make(chan struct{})
		defer close(release)
		b := newBroker()
		for _, id := range []string{"1", "2", "3"} {
			b.put(event(id, order{ID: id}))
		}
		var calls atomic.Int64
		sub := b.subscribe()
		r := inbox.NewReceiver("r", sub, inbox.Accept[order](), inbox.MapRecord(func(r broker.Record) (broker.Record, error) {
			if strings.Contains(string(r.Body), `"2"`) {
				calls.Add(1)
				<-release
			}
			return r, nil
		}))
		a := newApp(testapp.Consumed("ship"), r.Consumer())
		runner := testapp.Must[*inbox.Runner](t)(inbox.NewRunner(a.DB, a.Registry, a.Producer,
			inbox.RunnerConfig{Logger: slog.New(slog.DiscardHandler)}, r))
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- runner.Run(ctx) }()
		stats := func() inbox.Stats { return testapp.Must[[]inbox.Stats](t)(runner.Stats(ctx))[0] }
		<-time.After(time.Minute)
		b.put(event("4", order{ID: "4"}))
		<-time.After(time.Minute)
		if s := stats(); s.Accepted != 3 || s.Parked != 1 || s.Paused != "" || calls.Load() != 2 {
			t.Errorf("got %+v after %d calls that hang, want the three others accepted, and the one parked after 2", s, calls.Load())
		}
		if n := sub.given.Load(); n != 1 {
			t.Errorf("got the batch returned %d times, want once", n)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

// late is a payload whose key takes a day if its id is 2.
type late struct {
	ID string `json:"id"`
}

func (late) PayloadType() string { return "late" }

func (late) Upcasters() []bus.Upcaster {
	return []bus.Upcaster{func(_ context.Context, text []byte) ([]byte, error) { return text, nil }}
}

func (p late) OrderingKey() string {
	takesADay(p.ID == "2")
	return "k"
}

// takesADay is for virtual time.
func takesADay(hangs bool) {
	if hangs {
		<-time.After(24 * time.Hour)
	}
}

// TestARecordThatHangsAgainIsPoisoned by its first retry and after each requeue. The receiver goes on meanwhile.
// Promise: relay-parked
func TestARecordThatHangsAgainIsPoisoned(t *testing.T) {
	layer := func(next bus.ProduceFunc) bus.ProduceFunc {
		return func(ctx context.Context, batch *bus.Batch) error {
			takesADay(slices.ContainsFunc(batch.Messages, func(m *bus.Message) bool { return strings.Contains(string(m.Payload), `"2"`) }))
			return next(ctx, batch)
		}
	}
	upcast := upcasting(func(_ context.Context, text string) error {
		takesADay(strings.Contains(text, ":2}"))
		return nil
	})
	mapping := inbox.MapRecord(func(r broker.Record) (broker.Record, error) {
		takesADay(strings.Contains(string(r.Body), `"2"`))
		return r, nil
	})
	orders := func(id string) broker.Record { return event(id, order{ID: id}) }
	lates := func(schema string) func(id string) broker.Record {
		return func(id string) broker.Record {
			r := event(id, order{ID: id})
			r.Attributes["type"], r.Attributes["schemaversion"] = "late", schema
			return r
		}
	}
	for what, test := range map[string]struct {
		record  func(id string) broker.Record
		options []inbox.Option
		layers  []bus.ProduceMiddleware
	}{
		"MapRecord":     {record: orders, options: []inbox.Option{inbox.Accept[order](), mapping}},
		"a layer":       {record: orders, options: []inbox.Option{inbox.Accept[order]()}, layers: []bus.ProduceMiddleware{layer}},
		"a key":         {record: lates("2"), options: []inbox.Option{inbox.Accept[late]()}},
		"an upcast key": {record: lates("1"), options: []inbox.Option{inbox.Accept[late]()}},
		"an upcaster": {options: []inbox.Option{inbox.Accept[fareV2](), inbox.AppendToLog("fare")}, record: func(id string) broker.Record {
			return fare(id, "", fmt.Sprintf(`{"amount":%s}`, id))
		}},
	} {
		t.Run(what, func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				ctx = context.WithValue(ctx, upcastKey{}, upcast)
				db := newApp().DB
				db.SetMaxOpenConns(1) // so that the processor waits for a transaction that hangs in virtual time
				b := newBroker()
				receiver := inbox.NewReceiver("r", b.subscribe(), test.options...)
				var l *ledger
				if what == "an upcaster" {
					l = fares(t, db, eventlog.Event[fareV2](), receiver.Consumer())
				} else {
					l = &ledger{app: testapp.New(t, db, testapp.Consumed("ship"), receiver.Consumer(),
						bus.Consume("keyed", func(context.Context, late) error { return nil }, bus.Ordered(bus.BlockKey)))}
					l.Producer = testapp.Must[*outbox.Producer](t)(outbox.NewProducer(l.Registry, outbox.ProducerConfig{Middleware: test.layers}))
				}
				runner := testapp.Must[*inbox.Runner](t)(inbox.NewRunner(l.DB, l.Registry, l.Producer,
					inbox.RunnerConfig{Log: l.log, Logger: slog.New(slog.DiscardHandler)}, receiver))
				processor := l.StartWith(ctx, outbox.ProcessorConfig{Logger: slog.New(slog.DiscardHandler)})
				running, cancel := context.WithCancel(ctx)
				ended := make(chan error, 1)
				go func() { ended <- runner.Run(running) }()
				poisons := testapp.Must[*poison.Store](t)(poison.NewStore(l.Registry))
				b.put(test.record("1"), test.record("2"), test.record("3"))
				for i := range 4 {
					<-time.After(5 * time.Minute)
					rows := l.Poisoned()
					if len(rows) != 1 || len(l.Pending()) > 0 {
						t.Fatalf("got %+v poisoned and %+v pending, want one poisoned", rows, l.Pending())
					}
					b.put(test.record(fmt.Sprint(i + 4)))
					testapp.Must[poison.Result](t)(poisons.Requeue(ctx, l.DB, rows[0].ID))
				}
				<-time.After(5 * time.Minute)
				if s := testapp.Must[[]inbox.Stats](t)(runner.Stats(ctx))[0]; s.Accepted != 6 || s.Parked != 1 || s.Paused != "" {
					t.Errorf("got %+v, want the six others accepted", s)
				}
				if rows := l.Pending(); len(rows) != 1 || rows[0].Attempts != 0 { // four retries still run
					t.Errorf("got %+v pending, want the fifth retry snoozed", rows)
				}
				cancel()
				if err := <-ended; err != nil {
					t.Errorf("run: %v", err)
				}
				processor.MustStop()
				<-time.After(25 * time.Hour)
			})
		})
	}
}

// TestAnUpcasterThatIsLateOnceKeepsTheOrder: the batch comes again, instead of the record being parked and appended behind those
// that follow it.
func TestAnUpcasterThatIsLateOnceKeepsTheOrder(t *testing.T) {
	for name, heeds := range map[string]bool{"ignores its context": false, "returns with its context": true} {
		t.Run(name, func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				var calls atomic.Int64
				upcast := upcasting(func(ctx context.Context, text string) error {
					if strings.Contains(text, ":1}") && calls.Add(1) == 1 {
						if heeds {
							<-ctx.Done()
							return ctx.Err()
						}
						<-time.After(8 * time.Second)
					}
					return nil
				})
				b := newBroker()
				into := inbox.NewReceiver("from-shop", b.subscribe(), inbox.AppendToLog("fare"), inbox.Accept[fareV2]())
				l := fares(t, newApp().DB, eventlog.Event[fareV2](), into.Consumer())
				r := testapp.Must[*inbox.Runner](t)(inbox.NewRunner(l.DB, l.Registry, l.Producer,
					inbox.RunnerConfig{Log: l.log, Logger: slog.New(slog.DiscardHandler)}, into))
				ctx = context.WithValue(ctx, upcastKey{}, upcast)
				processor := l.StartWith(ctx, outbox.ProcessorConfig{})
				running, cancel := context.WithCancel(ctx)
				ended := make(chan error, 1)
				go func() { ended <- r.Run(running) }()
				b.put(fare("1", "", `{"amount":1}`), fare("2", "", `{"amount":2}`))
				<-time.After(time.Minute)
				if got := l.fares(ctx); !slices.Equal(got, []int{1, 2}) {
					t.Errorf("got %v, want 1 and 2", got)
				}
				if s := testapp.Must[[]inbox.Stats](t)(r.Stats(ctx))[0]; s.Parked != 0 || s.Paused != "" {
					t.Errorf("got %+v, want none parked", s)
				}
				cancel()
				if err := <-ended; err != nil {
					t.Errorf("run: %v", err)
				}
				processor.MustStop()
			})
		})
	}
}

// TestAStopWhileTheDatabaseHangs takes no longer the more shards there are.
func TestAStopWhileTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	proxy, through, err := chaos.NewProxyTo(testdb.PostgresDSN(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	l, s := newLedger(t, testdb.OpenPostgres(t, through)), newShelf()
	l.deposit(40, 2)
	_, stop := l.runs(bankWith(s, relay.LogConfig{Shards: 8}))
	testapp.Eventually(t, "all is published", func() bool { return l.done() })
	proxy.Stall(true)
	t.Cleanup(func() { proxy.Stall(false) }) // also for what else is cleaned up
	began := time.Now()
	stop()
	if took := time.Since(began); took > 30*time.Second { // a statement of a shard, and that which returns the leases, have 5 s each
		t.Errorf("the stop took %s, want it within 30 s", took.Round(time.Second))
	}
}
