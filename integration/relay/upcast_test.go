package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

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

// fareV1 and fareV2 are one payload in two releases.
type (
	fareV1 struct {
		Amount int `json:"amount"`
	}
	fareV2 struct {
		Cents int `json:"cents"`
	}
	// fareOut is what other services get of it.
	fareOut struct {
		Text string `json:"text"`
	}
)

func (fareV1) PayloadType() string  { return "fare" }
func (fareV2) PayloadType() string  { return "fare" }
func (fareOut) PayloadType() string { return "fare.out" }

func (f fareV1) OrderingKey() string { return fmt.Sprint("k", f.Amount) }
func (f fareV2) OrderingKey() string { return fmt.Sprint("k", f.Cents) }

func (fareV2) Upcasters() []bus.Upcaster {
	return []bus.Upcaster{func(ctx context.Context, text []byte) ([]byte, error) {
		if call, ok := ctx.Value(upcastKey{}).(upcasting); ok {
			if err := call(ctx, string(text)); err != nil {
				return nil, err
			}
		}
		if !strings.Contains(string(text), "amount") {
			return nil, errors.New("it is no schema 1")
		}
		return []byte(strings.Replace(string(text), "amount", "cents", 1)), nil
	}}
}

// upcasting is called first by fareV2's upcaster if it is the context's value of upcastKey.
type (
	upcastKey struct{}
	upcasting func(ctx context.Context, text string) error
)

func fare(id, schema, body string) broker.Record {
	r := broker.Record{Destination: "fares", ID: id, Key: "k", ContentType: "application/json", Body: []byte(body),
		Attributes: map[string]string{"specversion": "1.0", "id": id, "source": shop, "type": "fare"}}
	if schema != "" {
		r.Attributes["schemaversion"] = schema
	}
	return r
}

// TestForwardersPublishTheNewestSchema of messages that wait from a release before, and name it.
func TestForwardersPublishTheNewestSchema(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		forwarder := func(name string, route relay.Route) bus.Consumer {
			return relay.NewForwarder(name, b, relay.Config{Source: shop, Routes: []relay.Route{route}})
		}
		testapp.New(t, db, forwarder("out", relay.To[fareV1]("fares"))).Produce(fareV1{1})
		testapp.New(t, db, forwarder("mapped", relay.To[fareV1]("fares"))).Produce(fareV1{2})
		now := testapp.New(t, db, forwarder("out", relay.To[fareV2]("fares")), forwarder("mapped", relay.To[fareV2]("",
			relay.DestinationFunc(func(_ *bus.Message, f fareV2) (string, error) { return fmt.Sprint("of-", f.Cents), nil }),
			relay.MapPayload(func(f fareV2) (fareOut, error) { return fareOut{fmt.Sprint(f.Cents)}, nil }))))
		now.Produce(fareV2{3})
		now.Start(testapp.Fast())
		testapp.Eventually(t, "all are published", now.Empty)
		var got []string
		for _, r := range b.all() {
			got = append(got, fmt.Sprintf("%s %s %s %s", r.Destination, r.Key, r.Attributes["schemaversion"], r.Body))
		}
		slices.Sort(got)
		want := []string{`fares k1 2 {"cents":1}`, `fares k3 2 {"cents":3}`, `of-2 k2  {"text":"2"}`, `of-3 k3  {"text":"3"}`}
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// TestReceivedSchemasAreUpcast: a record without a schema is of schema 1. What an older instance has received of a newer schema
// waits for a newer process, and a schema that is no number is parked.
// Promise: upcast
func TestReceivedSchemasAreUpcast(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		sub := b.subscribe()
		older := receives(t, db, inbox.NewReceiver("from-shop", sub, inbox.Accept[fareV1]()),
			bus.Consume("c", func(context.Context, fareV1) error { return nil }))
		older.run()
		b.put(fare("1", "", `{"amount":1}`), fare("2", "2", `{"cents":2}`), fare("3", "two", `{}`))
		testapp.Eventually(t, "all are acknowledged", func() bool { return sub.acked.Load() == 3 })
		older.stop()
		got := make(chan int, 10)
		newer := receives(t, db, inbox.NewReceiver("from-shop", sub, inbox.Accept[fareV2]()),
			bus.Consume("c", func(_ context.Context, f fareV2) error { got <- f.Cents; return nil }))
		newer.run()
		newer.Start(testapp.Fast())
		b.put(fare("4", "1", `{"amount":4}`))
		testapp.Eventually(t, "three are consumed", func() bool { return len(got) == 3 })
		all := []int{<-got, <-got, <-got}
		if slices.Sort(all); !slices.Equal(all, []int{1, 2, 4}) {
			t.Errorf("got %v, want 1, 2 and 4", all)
		}
		testapp.Eventually(t, "one is parked", func() bool { return len(newer.Poisoned()) == 1 })
		if p := newer.Poisoned()[0]; !strings.Contains(p.Errors, `attribute schemaversion`) {
			t.Errorf("got errors %s, want the attribute", p.Errors)
		}
	})
}

// TestAnInstanceThatNeedsTheKeyOfANewerSchemaStandsBack, since it cannot read the key.
func TestAnInstanceThatNeedsTheKeyOfANewerSchemaStandsBack(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		q := newQueue()
		older := receives(t, db, inbox.NewReceiver("from-shop", q, inbox.Accept[fareV1]()),
			bus.Consume("c", func(context.Context, fareV1) error { return nil }, bus.Ordered(bus.SkipPoisoned)))
		older.run()
		record := fare("1", "2", `{"cents":7}`)
		record.Key = ""
		q.batches <- []broker.Record{record}
		testapp.Eventually(t, "it stands back", func() bool {
			return strings.Contains(older.stats().Paused, `schema 2 of type "fare" is unknown`)
		})
		got := make(chan string, 1)
		newer := receives(t, db, inbox.NewReceiver("from-shop", q, inbox.Accept[fareV2]()),
			bus.Consume("c", func(ctx context.Context, f fareV2) error {
				m, _ := bus.MessageFromContext(ctx)
				got <- fmt.Sprint(m.OrderingKey, " ", f.Cents)
				return nil
			}, bus.Ordered(bus.SkipPoisoned)))
		newer.run()
		newer.Start(testapp.Fast())
		testapp.Eventually(t, "it is consumed", func() bool { return len(got) == 1 })
		if text := <-got; text != "k7 7" || q.acked.Load() > 1 {
			t.Errorf("got %q, want it once, under its key", text)
		}
	})
}

// fareGone is the payload in a release that does not need schema 1 any more.
type fareGone struct {
	Cents int `json:"cents"`
}

func (fareGone) PayloadType() string   { return "fare" }
func (f fareGone) OrderingKey() string { return fmt.Sprint("k", f.Cents) }

func (fareGone) Upcasters() []bus.Upcaster {
	return []bus.Upcaster{func(context.Context, []byte) ([]byte, error) { return nil, bus.Discard(errors.New("not wanted")) }}
}

// TestAnObsoleteRecordWithoutAKeyIsIgnored, although a consumer needs its key.
func TestAnObsoleteRecordWithoutAKeyIsIgnored(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]bus.ConsumerOption{
		"ordered": bus.Ordered(bus.SkipPoisoned),
		"not":     bus.Concurrency(1), // its consumer discards it
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				sub := newBroker().subscribe()
				s := receives(t, db, inbox.NewReceiver("from-shop", sub, inbox.Accept[fareGone]()),
					bus.Consume("c", func(context.Context, fareGone) error { return nil }, option))
				s.run()
				s.Start(testapp.Fast())
				old, current := fare("1", "", `{"amount":1}`), fare("2", "2", `{"cents":2}`)
				old.Key, current.Key = "", ""
				sub.broker.put(old, current)
				testapp.Eventually(t, "both are acknowledged", func() bool { return sub.acked.Load() == 2 })
				want := inbox.Stats{Accepted: 1, Ignored: 1}
				if name == "not" {
					want = inbox.Stats{Accepted: 2}
				}
				got := s.stats()
				if (inbox.Stats{Accepted: got.Accepted, Ignored: got.Ignored, Parked: got.Parked}) != want || sub.given.Load() != 0 {
					t.Errorf("got %+v, returned %d times, want %+v at the first delivery", got, sub.given.Load(), want)
				}
				testapp.Eventually(t, "nothing is left", s.Empty)
				if rows := s.Poisoned(); len(rows) > 0 {
					t.Errorf("got %+v poisoned, want none", rows)
				}
			})
		})
	}
}

// fares is an application with an event log of fares.
func fares(t *testing.T, db *bun.DB, event eventlog.Type, consumers ...bus.Consumer) *ledger {
	t.Helper()
	a := testapp.New(t, db)
	types := testapp.Must[*eventlog.Types](t)(eventlog.NewTypes(event))
	a.Registry = testapp.Must[*bus.Registry](t)(bus.RegistryConfig{Events: types}.NewRegistry(consumers...))
	a.Producer = testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry, outbox.ProducerConfig{}))
	return &ledger{app: a, log: testapp.Must[*eventlog.Log](t)(eventlog.NewLog(a.Registry, a.Producer, eventlog.LogConfig{}))}
}

// TestReceivedEventsAreUpcast before they are appended; one of a newer schema is left to a newer instance.
func TestReceivedEventsAreUpcast(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		sub := b.subscribe()
		olderReceiver := inbox.NewReceiver("from-shop", sub, inbox.AppendToLog("fare"), inbox.Accept[fareV1]())
		newerReceiver := inbox.NewReceiver("from-shop", sub, inbox.AppendToLog("fare"), inbox.Accept[fareV2]())
		older := fares(t, db, eventlog.Event[fareV1](), olderReceiver.Consumer())
		newer := fares(t, db, eventlog.Event[fareV2](), newerReceiver.Consumer())
		r, stop := older.receives(olderReceiver)
		b.put(fare("1", "", `{"amount":1}`))
		testapp.Eventually(t, "the first is acknowledged", func() bool { return sub.acked.Load() == 1 })
		b.put(fare("2", "2", `{"cents":2}`), fare("3", "", `{"amount":3}`))
		testapp.Eventually(t, "the older one stands back", func() bool {
			return strings.Contains(receiverStats(older, r).Paused, `schema 2 of type "fare" is unknown`)
		})
		stop()
		newer.receives(newerReceiver)
		testapp.Eventually(t, "the newer one has all", func() bool { return sub.acked.Load() == 3 })
		if got := newer.fares(t.Context()); !slices.Equal(got, []int{1, 2, 3}) {
			t.Errorf("got %v, want 1, 2 and 3", got)
		}
	})
}

// fares are the events of the stream fare-k.
func (l *ledger) fares(ctx context.Context) (cents []int) {
	l.Helper()
	for e, err := range l.log.ReadStream(ctx, l.DB, "fare-k", 0) {
		testapp.OK(l, err)
		cents = append(cents, e.Data.(fareV2).Cents)
	}
	return cents
}

// TestAReceivedEventThatIsObsoleteIsIgnored: its upcaster returns bus.Discard, perhaps only after the record was parked.
func TestAReceivedEventThatIsObsoleteIsIgnored(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		var calls atomic.Int64 // for the second record
		upcast := upcasting(func(_ context.Context, text string) error {
			switch {
			case strings.Contains(text, ":3}"):
				return nil
			case strings.Contains(text, ":2}") && calls.Add(1) == 1:
				return errors.New("not yet")
			}
			return bus.Discard(errors.New("not wanted"))
		})
		sub := newBroker().subscribe()
		into := inbox.NewReceiver("from-shop", sub, inbox.AppendToLog("fare"), inbox.Accept[fareV2]())
		l := fares(t, db, eventlog.Event[fareV2](), into.Consumer())
		r := testapp.Must[*inbox.Runner](t)(inbox.NewRunner(db, l.Registry, l.Producer,
			inbox.RunnerConfig{Log: l.log, Logger: slog.New(slog.DiscardHandler)}, into))
		untilStop(t, func(ctx context.Context) error { return r.Run(context.WithValue(ctx, upcastKey{}, upcast)) })
		sub.broker.put(fare("1", "", `{"amount":1}`), fare("2", "", `{"amount":2}`), fare("3", "", `{"amount":3}`))
		testapp.Eventually(t, "all are acknowledged", func() bool { return sub.acked.Load() == 3 })
		if s := receiverStats(l, r); s.Accepted != 1 || s.Ignored != 1 || s.Parked != 1 {
			t.Errorf("got %+v, want one accepted, one ignored and one parked", s)
		}
		l.StartWith(context.WithValue(context.WithoutCancel(t.Context()), upcastKey{}, upcast), testapp.Fast())
		testapp.Eventually(t, "the parked one is tried again", l.Empty)
		if rows := l.Poisoned(); len(rows) > 0 || calls.Load() != 2 {
			t.Errorf("got %+v poisoned after %d calls, want none after 2", rows, calls.Load())
		}
		if got := l.fares(t.Context()); !slices.Equal(got, []int{3}) {
			t.Errorf("got %v, want 3 only", got)
		}
	})
}

// TestALogForwarderLeavesANewerSchemaToANewerProcess: it neither halts nor parks the event, and publishes what precedes it.
// Promise: upcast
func TestALogForwarderLeavesANewerSchemaToANewerProcess(t *testing.T) {
	t.Parallel()
	for name, park := range map[string]bool{"halts": false, "parks": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
				s := newShelf()
				forwarder := func(route relay.Route) relay.LogForwarder {
					return relay.NewLogForwarder("fares", s, relay.LogConfig{Source: shop, Routes: []relay.Route{route}, ParkFailures: park,
						MaxAttempts: 1})
				}
				older, newer := fares(t, db, eventlog.Event[fareV1]()), fares(t, db, eventlog.Event[fareV2]())
				write := func(l *ledger, event bus.Payload) {
					l.inTx(func(ctx context.Context, tx bun.Tx) error {
						return testapp.Second(l.log.Append(ctx, tx, "fare-k", eventlog.AnyVersion, event))
					})
				}
				write(older, fareV1{1})
				write(newer, fareV2{2})
				write(older, fareV1{3})
				r, _ := older.runs(forwarder(relay.To[fareV1]("fares")))
				testapp.Eventually(t, "the older process says what it waits for", func() bool {
					return strings.Contains(older.stats(r).LastError, `schema 2 is unknown`)
				})
				if stats := older.stats(r); stats.Halted > 0 || stats.Parked > 0 || len(s.all()) != 1 {
					t.Fatalf("got %+v and %d records, want none halted or parked, and the record before it", stats, len(s.all()))
				}
				newer.runs(forwarder(relay.To[fareV2]("fares")))
				testapp.Eventually(t, "all are published", newer.done)
				if all := s.all(); len(all) != 3 || string(all[1].Body) != `{"cents":2}` {
					t.Errorf("got %+v, want all three, in order", all)
				}
			})
		})
	}
}
