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
