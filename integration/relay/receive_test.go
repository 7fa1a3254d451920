package relay_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// hostile are records that nobody can take, by what is said of them.
func hostile() map[string]broker.Record {
	with := func(change func(*broker.Record)) broker.Record {
		r := event("x", order{ID: "x"})
		change(&r)
		return r
	}
	structured := func(body string) broker.Record {
		return broker.Record{Destination: "orders", ContentType: "application/cloudevents+json; charset=utf-8", Body: []byte(body)}
	}
	return map[string]broker.Record{
		"is not a CloudEvent":         {Destination: "orders", Body: []byte("hello")},
		"attribute id is missing":     with(func(r *broker.Record) { delete(r.Attributes, "id") }),
		"attribute source is missing": with(func(r *broker.Record) { delete(r.Attributes, "source") }),
		`specversion "7"`:             with(func(r *broker.Record) { r.Attributes["specversion"] = "7" }),
		"is no UTF-8":                 with(func(r *broker.Record) { r.Attributes["subject"] = "\xff" }),
		"invalid UTF-8":               with(func(r *broker.Record) { r.Body = []byte{0xff, 0xfe, 0x00} }),
		"the event has no data":       with(func(r *broker.Record) { r.Body = nil }),
		"header ":                     with(func(r *broker.Record) { r.Headers = map[string]string{"h": "\x00\xff"} }),
		"headers: too large":          with(func(r *broker.Record) { r.Headers = map[string]string{"h": strings.Repeat("x", 9000)} }),
		"payload \"order.placed\": too large": with(func(r *broker.Record) {
			r.Body = fmt.Appendf(nil, `{"id":%q}`, strings.Repeat("x", 2<<20))
		}),
		"not percent-encoded": with(func(r *broker.Record) {
			r.Headers = map[string]string{"asyncmonolith-escaped": "1",
				"a": "%zz"}
		}),
		`consumer "nobody"`:              with(func(r *broker.Record) { r.Attributes["consumers"] = "ship,nobody" }),
		"separated by commas":            with(func(r *broker.Record) { r.Attributes["consumers"] = "ship,,%" }),
		"no JSON object":                 structured(`[1]`),
		"both data and data_base64":      structured(`{"specversion":"1.0","id":"1","source":"/","type":"order.placed","data":1,"data_base64":"AA=="}`),
		"data_base64 is no base64":       structured(`{"specversion":"1.0","id":"1","source":"/","type":"order.placed","data_base64":"*"}`),
		"a string, a number or a boolea": structured(`{"specversion":"1.0","id":{},"source":"/","type":"order.placed"}`),
		"or binary mode is allowed":      {ContentType: "application/cloudevents+avro", Body: []byte("x")},
	}
}

// TestUnacceptableRecordsAreParked: it is acknowledged, kept once, and poisoned with its reason;
// the good ones beside it are taken.
// Promise: relay-parked
func TestUnacceptableRecordsAreParked(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		bad := hostile()
		good := 0
		for _, record := range bad {
			b.put(record, event(fmt.Sprint(good), order{ID: fmt.Sprint(good)}))
			good++
		}
		b.put(broker.Record{Destination: "orders"}) // a tombstone
		unknown := event("u", order{ID: "u"})
		unknown.Attributes["type"] = "somebody.elses"
		b.put(unknown)
		sub := b.subscribe()
		sub.batch, sub.again = 17, 1
		s := receives(t, db, inbox.NewReceiver("from-shop", sub, inbox.Accept[order]()), effects(t, db, "ship"))
		s.run()
		s.Start(testapp.Fast())
		testapp.Eventually(t, "all is acknowledged", func() bool { return sub.acked.Load() == int64(len(b.all())) })
		testapp.Eventually(t, "what is bad is poisoned", func() bool { return s.Empty() && len(s.Poisoned()) >= len(bad) })
		if w := wrong(s.app, good, "ship"); w != 0 {
			t.Errorf("effects other than one: got %d, want 0", w)
		}
		rows := s.Poisoned()
		if len(rows) != len(bad) {
			t.Errorf("poisoned: got %d, want %d", len(rows), len(bad))
		}
		all := ""
		for _, row := range rows {
			all += row.Errors
			// An attempt that failed for the database does not judge the record.
			if judged := strings.Count(row.Errors, "inbox: receiver"); row.ConsumerType != "receive:from-shop" || judged != 1 {
				t.Errorf("poisoned: got %s, judged %d times, want it of the receiver, at once: %s", row.ConsumerType, judged, row.Errors)
			}
		}
		for reason := range bad {
			if !strings.Contains(strings.ReplaceAll(all, `\"`, `"`), reason) {
				t.Errorf("reasons: got none with %q", reason)
			}
		}
		if stats := s.stats(); stats.Parked != int64(len(bad)) || stats.Accepted != int64(good) || stats.Ignored != 4 || stats.Paused != "" {
			t.Errorf("stats: got %+v, want %d parked, %d new and 4 unknown", stats, len(bad), good)
		}
	})
}

// TestAParkedRecordIsAcceptedOnceItCanBe: requeued, it is mapped again, and has one effect although
// it is requeued, and delivered, once more.
// Promise: relay-parked
func TestAParkedRecordIsAcceptedOnceItCanBe(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var fixed atomic.Bool
		b := newBroker()
		b.put(broker.Record{Destination: "orders", ID: "1", Headers: map[string]string{"odd": "\xff"}, Body: []byte{0xff, 0, 1}})
		mapping := inbox.MapRecord(func(r broker.Record) (broker.Record, error) {
			if r.Attributes != nil {
				return r, nil
			}
			if string(r.Body) != "\xff\x00\x01" || r.Headers["odd"] != "\xff" {
				return r, fmt.Errorf("got %q, want the same as ever", r.Body)
			}
			if !fixed.Load() {
				return r, errors.New("not yet")
			}
			return event("1", order{ID: "1"}), nil
		})
		s := receives(t, db, inbox.NewReceiver("from-shop", b.subscribe(), inbox.Accept[order](), mapping), effects(t, db, "ship"))
		s.run()
		s.Start(testapp.Fast())
		testapp.Eventually(t, "it is poisoned", func() bool { return len(s.Poisoned()) == 1 })
		row := s.Poisoned()[0]
		if !strings.Contains(row.Errors, "MapRecord: not yet") ||
			!strings.Contains(row.Payload, base64.StdEncoding.EncodeToString([]byte{0xff, 0, 1})) {
			t.Errorf("poisoned: got %+v, want its reason, and its body as base64", row)
		}
		store := testapp.Must[*poison.Store](t)(poison.NewStore(s.Registry))
		testapp.Must[poison.Result](t)(store.Requeue(t.Context(), db, row.ID))
		testapp.Eventually(t, "it is poisoned again", func() bool { rows := s.Poisoned(); return len(rows) == 1 && rows[0].ID != row.ID })
		fixed.Store(true)
		testapp.Must[poison.Result](t)(store.Requeue(t.Context(), db, s.Poisoned()[0].ID))
		testapp.Eventually(t, "it is consumed", func() bool { return s.Empty() && s.Count("SELECT count(*) FROM effects") == 1 })
		b.put(event("1", order{ID: "1"})) // the sender has done the same
		testapp.Eventually(t, "the other is dropped", func() bool { return s.stats().Duplicates+s.stats().Parked >= 1 && s.Empty() })
		if w := wrong(s.app, 1, "ship"); w != 0 {
			t.Errorf("effects other than one: got %d, want 0", w)
		}
	})
}

// TestIDs: a UUID stays what it is, and what is none becomes the same each time; several
// records of one id, for different consumers, are all taken.
func TestIDs(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		id := uuid.Must(uuid.NewV7())
		b := newBroker()
		for _, consumers := range []string{"ship", "bill", "ship"} {
			r := event(id.String(), order{ID: "1"})
			r.Attributes["consumers"] = consumers
			b.put(r)
		}
		b.put(event("no uuid", order{ID: "2"}))
		s := receives(t, db, inbox.NewReceiver("from-shop", b.subscribe(), inbox.Accept[order]()), testapp.Consumed("ship"),
			testapp.Consumed("now-bill", bus.Aliases("bill")), testapp.Consumed("other"))
		s.run()
		testapp.Eventually(t, "all arrived", func() bool { st := s.stats(); return st.Accepted+st.Duplicates == 4 })
		got := make(map[string]string)
		for _, row := range s.Pending() {
			got[row.ConsumerType+" "+row.Payload] = row.MessageID
		}
		made := got[`other {"id":"2","n":0}`]
		if want := fmt.Sprint(map[string]string{`ship {"id":"1","n":0}`: id.String(), `now-bill {"id":"1","n":0}`: id.String(),
			`ship {"id":"2","n":0}`: made, `now-bill {"id":"2","n":0}`: made, `other {"id":"2","n":0}`: made}); fmt.Sprint(got) != want ||
			!strings.Contains(made, "-5") {
			t.Errorf("messages: got %v, want %v", got, want)
		}
	})
}

// TestEachRecipientReceivesAMessageOnce: a message may come for other consumers the second time, from a
// program that names more of them, or in another order. Each of them has it once.
func TestEachRecipientReceivesAMessageOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		n := 0
		for _, consumers := range []string{"ship", "ship,bill", "bill,ship", "bill", "bill,mail,mail,ship", "mail"} {
			r := event("1", order{ID: "1"})
			r.Attributes["consumers"] = consumers
			b.put(r)
			n++
		}
		for _, size := range []int{1, 100} { // of batches: apart, and in one
			sub := b.subscribe()
			sub.batch = size
			s := receives(t, db, inbox.NewReceiver(fmt.Sprint("from-shop-", size), sub, inbox.Accept[order]()), testapp.Consumed("ship"),
				testapp.Consumed("bill"), testapp.Consumed("mail"))
			s.run()
			testapp.Eventually(t, "all arrived", func() bool { return sub.acked.Load() == int64(n) })
			s.stop()
			got := make(map[string]int)
			for _, row := range s.Pending() {
				got[row.ConsumerType]++
			}
			if want := "map[bill:1 mail:1 ship:1]"; fmt.Sprint(got) != want {
				t.Errorf("messages, of batches of %d: got %v, want %s", size, got, want)
			}
			if stats := s.stats(); stats.Accepted != 3 || stats.Duplicates != int64(n)-3 {
				t.Errorf("stats: got %+v, want 3 new and the others again", stats)
			}
			s.Exec("DELETE FROM consumer_messages")
		}
	})
}

// TestRetention: what was received longer ago is forgotten, and what was not is not.
func TestRetention(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		const n = 2500
		b := newBroker()
		sub := b.subscribe()
		sub.batch = n
		for i := range n {
			b.put(event(fmt.Sprint(i), order{ID: fmt.Sprint(i)}))
		}
		s := receives(t, db, inbox.NewReceiver("from-shop", sub, inbox.Accept[order](), inbox.DeduplicationWindow(time.Minute)),
			testapp.Consumed("ship"))
		s.run()
		testapp.Eventually(t, "all arrived", func() bool { return s.stats().Accepted == n })
		s.stop()
		moved := fmt.Sprintf("UPDATE inbox_messages SET received_at = %s", testapp.In(db, -2*time.Minute))
		s.Exec(moved)
		s.Exec("INSERT INTO inbox_messages (receiver, hash, received_at) SELECT 'other', hash, received_at FROM inbox_messages")
		b.put(event("last", order{ID: "last"}))
		s.run()
		testapp.Eventually(t, "the last one arrived", func() bool { return s.stats().Accepted == n+1 })
		if stats := s.stats(); stats.InboxSize != n+1 || stats.Oldest < 2*time.Minute {
			t.Errorf("stats: got %+v, want all remembered", stats)
		}
		testapp.Eventually(t, "the rest is forgotten", func() bool { return s.stats().InboxSize == 1 })
		if other := s.Count("SELECT count(*) FROM inbox_messages WHERE receiver = 'other'"); other != n {
			t.Errorf("another receiver's: got %d, want %d", other, n)
		}
	})
}

// TestBackPressure: nothing is fetched while too much waits, and all arrives in the end.
func TestBackPressure(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		const n, most, batch = 1000, 200, 50
		b := newBroker()
		for i := range n {
			b.put(event(fmt.Sprint(i), order{ID: fmt.Sprint(i)}))
		}
		sub := b.subscribe()
		sub.batch = batch
		var paused atomic.Bool
		paused.Store(true)
		s := receives(t, db, inbox.NewReceiver("from-shop", sub, inbox.Accept[order](), inbox.MaxBacklog(most)), effects(t, db, "ship"))
		s.run()
		testapp.Eventually(t, "nothing is fetched", func() bool { return s.stats().Paused != "" && !sub.active.Load() || sub.acked.Load() == n })
		if waiting := len(s.Pending()); waiting <= most || waiting > most+2*batch {
			t.Errorf("waiting: got %d, want a little more than %d", waiting, most)
		}
		if stats := s.stats(); !strings.Contains(stats.Paused, "more than 200 messages wait") {
			t.Errorf("paused: got %q, want the reason", stats.Paused)
		}
		s.Start(testapp.Fast())
		testapp.Eventually(t, "all is consumed", func() bool { return sub.acked.Load() == n && s.Empty() })
		if w := wrong(s.app, n, "ship"); w != 0 {
			t.Errorf("effects other than one: got %d, want 0", w)
		}
	})
}

// TestABacklogIsCountedRarely: a count reads all of it. While it is full it is not counted each second, and while it is
// nearly full not for each batch.
func TestABacklogIsCountedRarely(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		const most, room = 4000, 40
		b := newBroker()
		sub := b.subscribe()
		sub.batch = 1
		receiver := inbox.NewReceiver("from-shop", sub, inbox.Accept[order](), inbox.MaxBacklog(most))
		a := newApp(testapp.Consumed("ship"), receiver.Consumer())
		a.ProduceMany(most - room)
		var counts atomic.Int64
		db := a.DB.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) {
			if strings.Contains(query, "SELECT count(*) FROM (SELECT 1 FROM") && strings.Contains(query, "UNION ALL") {
				counts.Add(1)
			}
		}))
		runner := testapp.Must[*inbox.Runner](t)(inbox.NewRunner(db, a.Registry, a.Producer,
			inbox.RunnerConfig{Logger: slog.New(slog.DiscardHandler)}, receiver))
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- runner.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("run: got %v, want nil", err)
			}
		}()
		for i := range room {
			b.put(event(fmt.Sprint(i), order{ID: fmt.Sprint(i)}))
		}
		testapp.Poll(t, "what there is room for is taken", time.Minute, time.Millisecond, func() bool { return sub.acked.Load() == room })
		if n := counts.Load(); n < 1 || n > 3 {
			t.Errorf("while there was little room: got %d counts for %d batches, want one or a few", n, room)
		}
		for i := range most {
			b.put(event(fmt.Sprint(room+i), order{ID: fmt.Sprint(room + i)}))
		}
		testapp.Sooner(t, "it is full", func() bool { return sub.given.Load() > 0 })
		counts.Store(0)
		<-time.After(10 * time.Minute)
		if n := counts.Load(); n < 10 || n > 30 {
			t.Errorf("in 10 minutes of waiting: got %d counts, want about 24", n)
		}
		acked := sub.acked.Load()
		a.Exec("DELETE FROM consumer_messages WHERE id IN (SELECT id FROM consumer_messages ORDER BY id LIMIT ?)", most/2)
		<-time.After(31 * time.Second)
		if got := sub.acked.Load(); got < acked+most/4 {
			t.Errorf("once there is room: got %d taken, want some %d", got-acked, most/2)
		}
	})
}

// TestRecordsAreAcknowledgedOnlyAfterTheCommit: while the database takes nothing all goes back,
// and afterwards all arrives.
// Promise: relay-ack
func TestRecordsAreAcknowledgedOnlyAfterTheCommit(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		const n = 120
		b := newBroker()
		for i := range n {
			b.put(event(fmt.Sprint(i), order{ID: fmt.Sprint(i)}))
		}
		var away atomic.Bool
		away.Store(true)
		sub := b.subscribe()
		sub.batch = 40
		// The application's own layer fails after the messages are written, and so rolls back.
		fails := func(next bus.ProduceFunc) bus.ProduceFunc {
			return func(ctx context.Context, batch *bus.Batch) error {
				if err := next(ctx, batch); err != nil || !away.Load() {
					return err
				}
				return errors.New("away")
			}
		}
		receiver := inbox.NewReceiver("from-shop", sub, inbox.Accept[order]())
		a := testapp.New(t, db, effects(t, db, "ship"), receiver.Consumer())
		a.Producer = testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry,
			outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{fails}}))
		runner := testapp.Must[*inbox.Runner](t)(inbox.NewRunner(db, a.Registry, a.Producer, inbox.RunnerConfig{}, receiver))
		s := &service{app: a, runner: runner}
		s.run()
		testapp.Eventually(t, "some went back", func() bool { return sub.given.Load() > 2 || sub.acked.Load() > 0 })
		if acked, rows := sub.acked.Load(),
			s.Count("SELECT (SELECT count(*) FROM inbox_messages) + (SELECT count(*) FROM consumer_messages)"); acked != 0 || rows != 0 {
			t.Errorf("got %d acknowledged and %d rows, want none", acked, rows)
		}
		testapp.Eventually(t, "the receiver says why it pauses", func() bool { return strings.Contains(s.stats().Paused, "away") })
		away.Store(false)
		s.Start(testapp.Fast())
		testapp.Eventually(t, "all is consumed", func() bool { return sub.acked.Load() == n && s.Empty() })
		if w := wrong(s.app, n, "ship"); w != 0 {
			t.Errorf("effects other than one: got %d, want 0", w)
		}
	})
}

// TestTelemetryAcknowledgesNothing: what it keeps, or whose error it keeps, is not taken over, and comes again.
func TestTelemetryAcknowledgesNothing(t *testing.T) {
	t.Parallel()
	errBroken := errors.New("the database is broken")
	for name, flaw := range map[string]func(next bus.ProduceFunc) bus.ProduceFunc{
		"it keeps a batch": func(bus.ProduceFunc) bus.ProduceFunc { return func(context.Context, *bus.Batch) error { return nil } },
		"it keeps an error": func(next bus.ProduceFunc) bus.ProduceFunc {
			return func(ctx context.Context, b *bus.Batch) error { _ = next(ctx, b); return nil }
		},
		"it panics": func(bus.ProduceFunc) bus.ProduceFunc {
			return func(context.Context, *bus.Batch) error { panic("no span") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, mended := newBroker(), atomic.Bool{}
			telemetry := func(next bus.ProduceFunc) bus.ProduceFunc {
				broken := flaw(next)
				return func(ctx context.Context, batch *bus.Batch) error {
					if mended.Load() {
						return next(ctx, batch)
					}
					return broken(ctx, batch)
				}
			}
			sub := b.subscribe()
			receiver := inbox.NewReceiver("from-shop", sub, inbox.Accept[order]())
			a := testapp.New(t, testdb.SQLite(t), testapp.Consumed("ship"), receiver.Consumer())
			breaks := func(next bus.ProduceFunc) bus.ProduceFunc {
				return func(ctx context.Context, batch *bus.Batch) error {
					if mended.Load() {
						return next(ctx, batch)
					}
					return errBroken
				}
			}
			producer := testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry,
				outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{breaks}}))
			config := inbox.RunnerConfig{Telemetry: telemetry, Logger: slog.New(slog.DiscardHandler)}
			s := &service{app: a, runner: testapp.Must[*inbox.Runner](t)(inbox.NewRunner(a.DB, a.Registry, producer, config, receiver))}
			b.put(event("1", order{ID: "1"}))
			s.run()
			testapp.Eventually(t, "it came back, or was acknowledged", func() bool { return sub.given.Load()+sub.acked.Load() > 0 })
			if n := sub.acked.Load(); n != 0 {
				t.Fatalf("got %d records acknowledged of which nothing is in the database, want none", n)
			}
			mended.Store(true)
			testapp.Eventually(t, "it is taken over", func() bool { return s.Count("SELECT count(*) FROM consumer_messages") == 1 })
		})
	}
}

// TestASubscriptionThatEndsIsTriedAgain, and says so.
func TestASubscriptionThatEndsIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := newBroker()
	b.put(event("1", order{ID: "1"}))
	sub := b.subscribe()
	missing := errors.New("no such subscription")
	sub.fails.Store(&missing)
	var log testapp.Lines
	s := receivesWith(t, testdb.SQLite(t), inbox.RunnerConfig{Logger: log.Logger()},
		inbox.NewReceiver("from-shop", sub, inbox.Accept[order]()), testapp.Consumed("ship"))
	s.run()
	testapp.Eventually(t, "it is said", func() bool {
		return strings.Contains(log.String(), "no such subscription") &&
			s.stats().Paused != ""
	})
	sub.fails.Store(nil)
	testapp.Eventually(t, "it goes on", func() bool { st := s.stats(); return st.Accepted == 1 && st.Paused == "" })
}

// TestASubscriberThatPanics does not take the process with it: it is as if the subscription had ended.
func TestASubscriberThatPanics(t *testing.T) {
	t.Parallel()
	var log testapp.Lines
	var calls atomic.Int64
	panics := subscriber(func(ctx context.Context, fn func(context.Context, []broker.Record) error) error {
		if calls.Add(1) == 1 {
			panic("no such field")
		}
		err := fn(ctx, []broker.Record{event("1", order{ID: "1"})})
		<-ctx.Done()
		return err
	})
	s := receivesWith(t, testdb.SQLite(t), inbox.RunnerConfig{Logger: log.Logger()},
		inbox.NewReceiver("from-shop", panics, inbox.Accept[order]()), testapp.Consumed("ship"))
	s.run()
	testapp.Eventually(t, "it goes on", func() bool { return s.stats().Accepted == 1 })
	if text := log.String(); !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "no such field") {
		t.Errorf("log: got %s, want a line at Error with what it panicked with", text)
	}
}

// subscriber is a subscription that is a function.
type subscriber func(ctx context.Context, fn func(context.Context, []broker.Record) error) error

func (s subscriber) Subscribe(ctx context.Context, fn func(context.Context, []broker.Record) error) error {
	return s(ctx, fn)
}

// flaky is a subscription that ends every time, and brings a record the third time.
type flaky struct{ calls int }

func (f *flaky) Subscribe(ctx context.Context, fn func(context.Context, []broker.Record) error) error {
	f.calls++
	switch f.calls {
	case 3:
		_ = fn(ctx, []broker.Record{event("1", order{ID: "1"})})
	case 4:
		<-ctx.Done()
		return nil
	}
	return errors.New("the subscription is gone")
}

// TestASubscriptionThatHasWorkedIsTriedAgainAtOnce: it waits for 1 s again, whatever there was before.
func TestASubscriptionThatHasWorkedIsTriedAgainAtOnce(t *testing.T) {
	t.Parallel()
	var log testapp.Lines
	s := receivesWith(t, testdb.SQLite(t), inbox.RunnerConfig{Logger: log.Logger()},
		inbox.NewReceiver("from-shop", &flaky{}, inbox.Accept[order]()), testapp.Consumed("ship"))
	s.run()
	testapp.Eventually(t, "it has ended three times", func() bool { return strings.Count(log.String(), "next_try_within") == 3 })
	for within, n := range map[string]int{"next_try_within=1s": 2, "next_try_within=2s": 1} {
		if got := strings.Count(log.String(), within); got != n {
			t.Errorf("%s: got %d lines, want %d, in\n%s", within, got, n, log.String())
		}
	}
}

// TestKeys: those of ordered consumers come with the record, or from the payload.
func TestKeys(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		byKey, byAttribute, none := event("1", order{ID: "1"}), event("2", order{ID: "2"}), event("3", order{ID: "3"})
		byKey.Key, byAttribute.Attributes["partitionkey"] = "a", "b"
		b.put(byKey, byAttribute, none)
		s := receives(t, db, inbox.NewReceiver("from-shop", b.subscribe(), inbox.Accept[order]()),
			testapp.Consumed("ship", bus.Ordered(bus.BlockKey)))
		s.run()
		testapp.Eventually(t, "all arrived", func() bool { st := s.stats(); return st.Accepted == 2 && st.Parked == 1 })
	})
}

// TestABatchThatIsTooMuchIsTakenInParts: together the records take too long, or are too large, for one transaction.
func TestABatchThatIsTooMuchIsTakenInParts(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		for name, test := range map[string]struct{ records, bytes, most int }{"time": {150, 10, 40}, "bytes": {40, 900_000, 9}} {
			t.Run(name, func(t *testing.T) {
				b := newBroker()
				for i := range test.records {
					b.put(event(fmt.Sprint(i), order{ID: strings.Repeat("x", test.bytes)}))
				}
				sub := b.subscribe()
				sub.batch = test.records
				slow := func(next bus.ProduceFunc) bus.ProduceFunc {
					return func(ctx context.Context, batch *bus.Batch) error {
						if len(batch.Messages) <= test.most {
							return next(ctx, batch)
						}
						if name == "bytes" {
							t.Errorf("got %d messages of %d bytes at once, want at most %d", len(batch.Messages), test.bytes, test.most)
						}
						return fmt.Errorf("layer: %w", context.DeadlineExceeded)
					}
				}
				receiver := inbox.NewReceiver("from-"+name, sub, inbox.Accept[order]())
				a := testapp.New(t, db, testapp.Consumed("ship"), receiver.Consumer())
				a.Producer = testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry,
					outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{slow}}))
				s := &service{app: a, runner: testapp.Must[*inbox.Runner](t)(inbox.NewRunner(db, a.Registry, a.Producer, inbox.RunnerConfig{},
					receiver))}
				s.run()
				testapp.Eventually(t, "all are acknowledged", func() bool { return sub.acked.Load() == int64(test.records) })
				a.Exec("DELETE FROM consumer_messages")
			})
		}
	})
}
