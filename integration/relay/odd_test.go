package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestARecordThatCannotBeStored: MariaDB takes no packet of the size of one, so that it stays at the broker,
// and the receiver says so; the others of its batch are taken over. It is not parallel: 13 MiB have to be encoded within
// the ten seconds of an acceptance, with the race detector.
func TestARecordThatCannotBeStored(t *testing.T) {
	b := newBroker()
	huge := broker.Record{Destination: "orders", Body: bytes.Repeat([]byte{0xff}, 13<<20)} // a third more in base64
	b.put(event("1", order{ID: "1"}), huge, event("2", order{ID: "2"}))
	sub := b.subscribe()
	s := receives(t, testdb.MariaDB(t), inbox.NewReceiver("from-shop", sub, inbox.Accept[order]()), testapp.Consumed("ship"))
	s.run()
	testapp.Eventually(t, "the receiver says why it pauses", func() bool {
		paused := s.stats().Paused
		return strings.Contains(paused, "a record of 13631488 bytes cannot be parked") &&
			strings.Contains(paused, "max_allowed_packet") && s.stats().Accepted == 2
	})
	testapp.Eventually(t, "it comes again", func() bool { return sub.given.Load() > 1 || sub.acked.Load() > 0 })
	if acked := sub.acked.Load(); acked != 0 {
		t.Errorf("got %d acknowledged, want none", acked)
	}
	if stats, waiting := s.stats(), len(s.Pending()); stats.Accepted != 2 || stats.Parked != 0 || waiting != 2 {
		t.Errorf("got %+v, and %d messages, want those of the others", stats, waiting)
	}
}

// touchy is a payload whose methods panic.
type touchy struct {
	Text string `json:"text"`
}

func (touchy) PayloadType() string { return "touchy" }

func (p touchy) OrderingKey() string {
	if p.Text == "boom" {
		panic("no such key")
	}
	return "key"
}

// TestAPayloadOnWhichTheApplicationPanics is parked, and the process goes on.
func TestAPayloadOnWhichTheApplicationPanics(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		for i, text := range []string{"good", "boom", "good"} {
			b.put(broker.Record{ContentType: "application/json", Body: fmt.Appendf(nil, `{"text":%q}`, text),
				Attributes: map[string]string{"specversion": "1.0", "id": fmt.Sprint(i), "source": "/odd", "type": "touchy"}})
		}
		sub := b.subscribe()
		s := receives(t, db, inbox.NewReceiver("from-odd", sub, inbox.Accept[touchy]()),
			bus.Consume("feel", func(context.Context, touchy) error { return nil }, bus.Ordered(bus.BlockKey)))
		s.run()
		s.Start(testapp.Fast())
		testapp.Eventually(t, "all is acknowledged", func() bool { return sub.acked.Load() == 3 && s.Empty() })
		if rows := s.Poisoned(); len(rows) != 1 || !strings.Contains(rows[0].Errors, "no such key") || s.stats().Accepted != 2 {
			t.Errorf("got %d poisoned and %+v, want the one", len(rows), s.stats())
		}
	})
}

// TestWhatALayerOfTheProducerRefuses: by an error that says so it is parked; by any other it comes again.
func TestWhatALayerOfTheProducerRefuses(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		b.put(event("1", order{ID: "1"}), event("2", order{ID: "bad"}), event("3", order{ID: "3"}))
		sub := b.subscribe()
		receiver := inbox.NewReceiver("from-shop", sub, inbox.Accept[order]())
		a := testapp.New(t, db, testapp.Consumed("ship"), receiver.Consumer())
		var down atomic.Bool
		down.Store(true)
		producer := testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry,
			outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{func(next bus.ProduceFunc) bus.ProduceFunc {
				return func(ctx context.Context, batch *bus.Batch) error {
					if down.Load() {
						return errors.New("the service that checks them is away")
					}
					for _, m := range batch.Messages {
						if strings.Contains(string(m.Payload), "bad") {
							return fmt.Errorf("%w: it has no tenant", bus.ErrInvalidPayload)
						}
					}
					return next(ctx, batch)
				}
			}}}))
		runner := testapp.Must[*inbox.Runner](t)(inbox.NewRunner(db, a.Registry, producer,
			inbox.RunnerConfig{Logger: slog.New(slog.DiscardHandler)}, receiver))
		s := &service{app: a, runner: runner, stop: func() {}}
		s.run()
		testapp.Eventually(t, "it comes again", func() bool { return sub.given.Load() > 1 && strings.Contains(s.stats().Paused, "away") })
		if acked, stats := sub.acked.Load(), s.stats(); acked != 0 || stats.Accepted+stats.Parked != 0 {
			t.Errorf("while a layer fails: got %d acknowledged and %+v, want none, and the reason", acked, stats)
		}
		down.Store(false)
		testapp.Eventually(t, "all is acknowledged", func() bool { return sub.acked.Load() == 3 })
		if stats := s.stats(); stats.Accepted != 2 || stats.Parked != 1 {
			t.Errorf("got %+v, want the bad one parked", stats)
		}
	})
}

// TestLayersOfTheProducerChangeAMessageOnce: they have seen a batch before, when it is written in parts since one of
// it cannot be.
func TestLayersOfTheProducerChangeAMessageOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		for _, id := range []string{"1", "2", "bad", "4"} {
			r := event(id, order{ID: id})
			r.Headers = map[string]string{"sealed": ""}
			b.put(r)
		}
		sub := b.subscribe()
		receiver := inbox.NewReceiver("from-shop", sub, inbox.Accept[order]())
		a := testapp.New(t, db, testapp.Consumed("ship"), receiver.Consumer())
		seal := func(next bus.ProduceFunc) bus.ProduceFunc {
			return func(ctx context.Context, batch *bus.Batch) error {
				for _, m := range batch.Messages {
					m.Payload = fmt.Appendf(nil, `{"sealed":%s}`, m.Payload)
					m.Headers["sealed"] += "x"
				}
				for _, m := range batch.Messages {
					if strings.Contains(string(m.Payload), "bad") {
						return fmt.Errorf("%w: it is bad", bus.ErrInvalidPayload)
					}
				}
				return next(ctx, batch)
			}
		}
		producer := testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry,
			outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{seal}}))
		s := &service{app: a, runner: testapp.Must[*inbox.Runner](t)(inbox.NewRunner(db, a.Registry, producer,
			inbox.RunnerConfig{Logger: slog.New(slog.DiscardHandler)}, receiver)), stop: func() {}}
		s.run()
		testapp.Eventually(t, "all is acknowledged", func() bool { return sub.acked.Load() == 4 })
		for _, row := range s.Pending() {
			if row.ConsumerType == "ship" && (strings.Count(row.Payload, "sealed") != 1 || !strings.Contains(row.Headers, `"x"`)) {
				t.Errorf("got %s with headers %s, want what the layer does, once", row.Payload, row.Headers)
			}
		}
		if stats := s.stats(); stats.Accepted != 3 || stats.Parked != 1 {
			t.Errorf("got %+v, want the bad one parked", stats)
		}
	})
}

// TestRecordsThatAllFailTakeFewWrites: each is found to be one that cannot be taken, and parked. One alone is
// found in few writes, too.
func TestRecordsThatAllFailTakeFewWrites(t *testing.T) {
	t.Parallel()
	const batch = 256
	for _, test := range []struct {
		name string
		bad  func(i int) bool
		most int64
	}{
		{"all", func(int) bool { return true }, 290},
		{"none", func(int) bool { return false }, 1},
		{"the first", func(i int) bool { return i == 0 }, 30},
		{"the last", func(i int) bool { return i == batch-1 }, 30},
		{"one amid the others", func(i int) bool { return i == 100 }, 30},
		{"every tenth", func(i int) bool { return i%10 == 7 }, 260},
		{"every other", func(i int) bool { return i%2 == 0 }, 420},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBroker()
			parked := 0
			for i := range batch {
				text := "good"
				if test.bad(i) {
					text, parked = "boom", parked+1
				}
				b.put(broker.Record{ContentType: "application/json", Body: fmt.Appendf(nil, `{"text":%q}`, text),
					Attributes: map[string]string{"specversion": "1.0", "id": fmt.Sprint(i), "source": "/odd", "type": "touchy"}})
			}
			sub := b.subscribe()
			sub.batch = batch
			var tried atomic.Int64 // each is a transaction
			db := testdb.SQLite(t).WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) {
				if strings.Contains(query, `INTO "inbox_messages"`) {
					tried.Add(1)
				}
			}))
			s := receives(t, db, inbox.NewReceiver("from-odd", sub, inbox.Accept[touchy]()),
				bus.Consume("feel", func(context.Context, touchy) error { return nil }, bus.Ordered(bus.BlockKey)))
			s.run()
			testapp.Eventually(t, "all is acknowledged", func() bool { return sub.acked.Load() == batch })
			if n := tried.Load(); n < 1 || n > test.most {
				t.Errorf("writes: got %d, want at most %d", n, test.most)
			}
			if stats := s.stats(); stats.Accepted != int64(batch-parked) || stats.Parked != int64(parked) || stats.Duplicates != 0 {
				t.Errorf("got %+v, want %d new and %d parked", stats, batch-parked, parked)
			}
		})
	}
}

// crate is a payload as applications have it.
type crate struct {
	ID       string `json:"id"`
	Quantity int    `json:"quantity"`
}

func (crate) PayloadType() string { return "crate" }

// broker delivers each record in a batch of its own.
type once struct {
	records []broker.Record
	done    chan struct{}
}

func (b *once) Subscribe(ctx context.Context, fn func(context.Context, []broker.Record) error) error {
	for _, r := range b.records {
		if err := fn(ctx, []broker.Record{r}); err != nil {
			return err
		}
	}
	close(b.done)
	<-ctx.Done()
	return nil
}

// odd is what became of the records that a receiver of crates had.
type odd struct {
	runs     []crate
	poisoned []string
	inbox.Stats
}

func receive(t *testing.T, records []broker.Record, options ...inbox.Option) (o odd) {
	t.Helper()
	b := &once{records, make(chan struct{})}
	receiver := inbox.NewReceiver("from", b, append(options, inbox.Accept[crate]())...)
	var n atomic.Int64
	runs := make(chan crate, len(records))
	a := testapp.New(t, testdb.SQLite(t), receiver.Consumer(), bus.Consume("ship", func(_ context.Context, p crate) error {
		n.Add(1)
		runs <- p
		return nil
	}))
	runner := testapp.Must[*inbox.Runner](t)(inbox.NewRunner(a.DB, a.Registry, a.Producer,
		inbox.RunnerConfig{Logger: slog.New(slog.DiscardHandler)}, receiver))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(ctx) }()
	testapp.Eventually(t, "all are acknowledged", func() bool {
		select {
		case <-b.done:
			return true
		default:
			return false
		}
	})
	p := a.Start(testapp.Fast())
	testapp.Eventually(t, "done", a.Empty)
	stats := testapp.Must[[]inbox.Stats](t)(runner.Stats(t.Context()))
	cancel()
	<-ended
	p.MustStop()
	close(runs)
	for r := range runs {
		o.runs = append(o.runs, r)
	}
	for _, r := range a.Poisoned() {
		o.poisoned = append(o.poisoned, r.ConsumerType)
	}
	o.Stats = stats[0]
	return o
}

// TestForeignEventsOfASharedTopicAreIgnored: of types that the receiver does not accept it is no concern how they are written.
func TestForeignEventsOfASharedTopicAreIgnored(t *testing.T) {
	foreign := func(pairs ...string) broker.Record {
		return broker.Record{Destination: "shop", ContentType: "application/json",
			Attributes: attributes(append([]string{"type", "com.example.other"}, pairs...)...), Body: []byte(`{}`)}
	}
	for name, r := range map[string]broker.Record{
		"plain":                           foreign(),
		"binary, ce_correlationId":        foreign("correlationId", "1"),
		"binary, ce_trace-id":             foreign("trace-id", "1"),
		"binary, an attribute is no text": foreign("trace", "\xff\xfe"),
		"binary, a header is no text": {ContentType: "application/json", Attributes: foreign().Attributes,
			Headers: map[string]string{"asyncmonolith-escaped": "1", "trace": "%zz", "bytes": "\xff\xfe"}},
		"structured, camel case":             structured(`{"specversion":"1.0","id":"1","source":"/s","type":"com.example.other","correlationId":"1","data":{}}`),
		"structured, an object as extension": structured(`{"specversion":"1.0","id":"1","source":"/s","type":"com.example.other","routing":{"route":"x"},"data":{}}`),
		"structured, an array as extension":  structured(`{"specversion":"1.0","id":"1","source":"/s","type":"com.example.other","tags":["x"],"data":{}}`),
		"structured, $schema":                structured(`{"$schema":"https://example.com/e.json","specversion":"1.0","id":"1","source":"/s","type":"com.example.other","data":{}}`),
		"structured, 0.3":                    structured(`{"specversion":"0.3","id":"1","source":"/s","type":"com.example.other","data":{}}`),
		"structured, data and data_base64":   structured(`{"specversion":"1.0","id":"1","source":"/s","type":"com.example.other","data":{},"data_base64":"e30="}`),
	} {
		t.Run(name, func(t *testing.T) {
			o := receive(t, []broker.Record{r})
			if o.Ignored != 1 || o.Parked != 0 || len(o.poisoned) != 0 {
				t.Errorf("got unknown %d, parked %d, poisoned %v, want unknown 1 and nothing poisoned", o.Ignored, o.Parked, o.poisoned)
			}
		})
	}
}

func structured(body string) broker.Record {
	return broker.Record{Destination: "crates", ContentType: "application/cloudevents+json", Body: []byte(body)}
}

func attributes(pairs ...string) map[string]string {
	m := map[string]string{"specversion": "1.0", "id": "1", "source": "/s", "type": "crate"}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

// TestNullDataIsPoisoned: an event whose data is null has none, and its consumer does not run with a zero payload.
func TestNullDataIsPoisoned(t *testing.T) {
	for _, c := range []struct {
		name    string
		record  broker.Record
		options []inbox.Option
	}{
		{"structured", structured(`{"specversion":"1.0","id":"1","source":"/s","type":"crate","data":null}`), nil},
		{"structured, with its type", structured(`{"specversion":"1.0","id":"1","source":"/s","type":"crate","datacontenttype":"application/json","data":null}`), nil},
		{"binary", broker.Record{ContentType: "application/json", Attributes: attributes(), Body: []byte("null")}, nil},
		{"structured, text", structured(`{"specversion":"1.0","id":"1","source":"/s","type":"crate","datacontenttype":"text/plain","data":null}`), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := receive(t, []broker.Record{c.record}, c.options...)
			if len(o.runs) != 0 || len(o.poisoned) != 1 || o.poisoned[0] != "receive:from" {
				t.Errorf("got runs %+v, poisoned %v, want no run, and 1 poisoned under receive:from", o.runs, o.poisoned)
			}
		})
	}
	t.Run("data null beside data_base64", func(t *testing.T) {
		o := receive(t, []broker.Record{structured(`{"specversion":"1.0","id":"1","source":"/s","type":"crate","data":null,"data_base64":"eyJpZCI6Ing2In0="}`)})
		if len(o.runs) != 1 || o.runs[0].ID != "x6" {
			t.Errorf("got runs %+v, poisoned %v, want the data in base64 taken, as data_base64 null beside data is", o.runs, o.poisoned)
		}
	})
}

// TestANullIsIgnored: a compacted topic has one for a removed key. A connector may copy the type to it.
func TestANullIsIgnored(t *testing.T) {
	for name, has := range map[string]map[string]string{
		"no type": nil, "an accepted type": {"type": "crate"}, "another type": {"type": "com.example.other"},
	} {
		t.Run(name, func(t *testing.T) {
			o := receive(t, []broker.Record{{Destination: "outbox.event.crate", Key: "1", Attributes: has}})
			if o.Ignored != 1 || len(o.poisoned) != 0 {
				t.Errorf("got unknown %d, poisoned %v, want unknown 1 and nothing poisoned", o.Ignored, o.poisoned)
			}
		})
	}
}
