package relay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/projections"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

func intoLog(sub broker.Subscriber) inbox.Receiver {
	return inbox.NewReceiver("from-bank", sub, inbox.AppendToLog("bank"), inbox.Accept[opened](), inbox.Accept[deposited]())
}

// amounts are those of the events of each stream, in their order.
func (l *ledger) amounts() map[string][]int {
	l.Helper()
	testapp.OK(l, testapp.Second(l.log.AssignPositions(l.Context(), l.DB)))
	all := make(map[string][]int)
	for e, err := range l.log.ReadLog(l.Context(), l.DB, 0, eventlog.Filter{}) {
		if err != nil {
			l.Fatal(err)
		}
		if d, ok := e.Data.(deposited); ok {
			all[e.Stream] = append(all[e.Stream], d.Amount)
		} else {
			all[e.Stream] = append(all[e.Stream], -1)
		}
	}
	return all
}

// total is a projection of the log that was received.
func (l *ledger) total() *projection.Runner {
	l.Helper()
	l.Exec("CREATE TABLE total (stream VARCHAR(100) PRIMARY KEY, amount BIGINT NOT NULL)")
	return testapp.Must[*projection.Runner](l.T)(projection.NewRunner(l.DB, l.log, projection.RunnerConfig{}, projection.Projection{
		Name: "total", Categories: []string{"bank"},
		On: []projection.Handler{projection.On(func(ctx context.Context, tx bun.Tx, d deposited) error {
			m, _ := bus.MessageFromContext(ctx)
			_, err := tx.NewRaw("INSERT INTO total (stream, amount) VALUES (?, ?) ON CONFLICT (stream) DO UPDATE SET amount = total.amount + EXCLUDED.amount", m.Event.Stream, d.Amount).Exec(ctx)
			return err
		})},
	}))
}

// TestALogIntoAnother: in order, once, although all is delivered three times and some
// acknowledgements are lost, for projections to go on with; and erased there, it is erased here.
func TestALogIntoAnother(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		from, b := newLedger(t, testdb.SQLite(t)), newBroker()
		sub := b.subscribe()
		sub.batch, sub.again = 7, 2
		receiver := intoLog(sub)
		to := newLedger(t, db, receiver.Consumer())
		total := to.total()
		from.deposit(10, 20)
		from.runs(bank(b))
		r, _ := to.receives(receiver)
		testapp.Eventually(t, "all is there", func() bool { return to.Count("SELECT count(*) FROM events") == from.events })
		readers := testapp.Must[*projections.Admin](t)(projections.NewAdmin(to.Registry))
		for _, s := range testapp.Must[[]projections.State](t)(readers.States(t.Context(), db)) {
			if strings.HasPrefix(s.Name, "receive:") {
				t.Errorf("readers of the log: got %+v, which writes to it", s)
			}
		}
		want := make(map[string][]int)
		sum := 0
		for stream, amounts := range from.amounts() {
			want["bank-"+stream] = amounts
			for _, amount := range amounts {
				sum += amount
			}
		}
		if got := to.amounts(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", got, want)
		}
		testapp.OK(t, testapp.Second(total.CatchUp(t.Context())))
		if got := to.Count("SELECT SUM(amount) FROM total"); got != sum {
			t.Errorf("total: got %d, want %d", got, sum)
		}
		from.inTx(func(ctx context.Context, tx bun.Tx) error { return from.log.Tombstone(ctx, tx, "account-3") })
		testapp.Eventually(t, "it is told that a stream is erased", func() bool {
			return to.Count("SELECT count(*) FROM events WHERE stream = 'bank-account-3' AND event_type = 'asyncmonolith.tombstoned'") == 1
		})
		if n := to.Count("SELECT count(*) FROM events WHERE stream = 'bank-account-3' AND data IS NOT NULL"); n != 1 {
			t.Errorf("of the stream: got %d events, want the last one alone", n)
		}
		if got := to.amounts()["bank-account-3"]; !slices.Equal(got, []int{-1}) {
			t.Errorf("got %v, want what says that it was erased", got)
		}
		// What comes of it once more, to a receiver that has forgotten, is not kept.
		acknowledged := func() bool { return int(sub.acked.Load()) == len(b.all()) } // after being delivered again
		testapp.Eventually(t, "all is acknowledged", acknowledged)
		to.Exec("DELETE FROM inbox_messages")
		again := testapp.Must[[]inbox.Stats](t)(r.Stats(t.Context()))[0].Accepted
		b.put(b.all()[3])
		testapp.Eventually(t, "it has arrived", func() bool {
			return acknowledged() && to.Count("SELECT count(*) FROM inbox_messages") == 1 && to.Count("SELECT count(*) FROM consumer_messages") == 0
		})
		if got := to.amounts()["bank-account-3"]; len(got) != 1 || len(to.Poisoned()) != 0 {
			t.Errorf("got %v and %d poisoned, want the record dropped, %d were new", got, len(to.Poisoned()), again)
		}
	})
}

// TestNothingIsKeptOfAnErasedStream: a record that could not be read is tried again when its stream is erased by then.
func TestNothingIsKeptOfAnErasedStream(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		var fixed atomic.Bool
		b := newBroker()
		receiver := inbox.NewReceiver("from-bank", b.subscribe(), inbox.AppendToLog("bank"), inbox.Accept[opened](), inbox.Accept[deposited](),
			inbox.MapRecord(func(r broker.Record) (broker.Record, error) {
				if r.Attributes == nil && !fixed.Load() {
					return r, errors.New("not yet")
				} else if r.Attributes == nil {
					return deposit("account-1", 7), nil
				}
				return r, nil
			}))
		to := newLedger(t, db, receiver.Consumer())
		to.receives(receiver)
		to.Start(testapp.Fast())
		b.put(deposit("account-1", 1), broker.Record{Body: []byte("7 on account-1")})
		testapp.Eventually(t, "one is poisoned", func() bool { return len(to.Poisoned()) == 1 && len(to.amounts()["bank-account-1"]) == 1 })
		to.inTx(func(ctx context.Context, tx bun.Tx) error { return to.log.Tombstone(ctx, tx, "bank-account-1") })
		fixed.Store(true)
		store := testapp.Must[*poison.Store](t)(poison.NewStore(to.Registry))
		testapp.Must[poison.Result](t)(store.Requeue(t.Context(), db, to.Poisoned()[0].ID))
		testapp.Eventually(t, "it was tried again", to.Empty)
		if rows := to.Poisoned(); len(rows) != 0 {
			t.Errorf("poisoned: got %+v, want the record dropped", rows)
		}
	})
}

// TestALateRecordOfAnErasedStreamDoesNotDelayOthers: the events of its batch that were written before it was found
// to be late are written once more.
func TestALateRecordOfAnErasedStreamDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		erased := broker.Record{Key: "account-1", Attributes: map[string]string{"specversion": "1.0", "id": "erased", "source": "/bank",
			"subject": "account-1",
			"type":    eventlog.Tombstoned{}.PayloadType()}}
		b.put(deposit("account-1", 1), deposit("account-2", 1), erased, deposit("account-1", 2), deposit("account-2", 2))
		sub := b.subscribe()
		receiver := intoLog(sub)
		to := newLedger(t, db, receiver.Consumer())
		to.receives(receiver)
		testapp.Eventually(t, "all arrived", func() bool { return sub.acked.Load() == 5 })
		if got := to.amounts(); fmt.Sprint(got) != "map[bank-account-1:[-1] bank-account-2:[1 2]]" {
			t.Errorf("got %v, want the one stream erased, and the other whole", got)
		}
	})
}

// unsafeCodec panics when it encodes the end of a stream.
type unsafeCodec struct{ bus.JSON }

func (c unsafeCodec) Encode(payload any) ([]byte, error) {
	if _, is := payload.(eventlog.Tombstoned); is {
		panic("no tombstones")
	}
	return c.JSON.Encode(payload)
}

// TestACodecThatPanicsParksOnlyItsRecord: a record that ends a stream has no data, so that the codec is called for it.
func TestACodecThatPanicsParksOnlyItsRecord(t *testing.T) {
	t.Parallel()
	b := newBroker()
	sub := b.subscribe()
	receiver := intoLog(sub)
	to := newLedger(t, testdb.SQLite(t), receiver.Consumer())
	types := testapp.Must[*eventlog.Types](t)(eventlog.NewTypes(eventlog.Event[opened](), eventlog.Event[deposited]()))
	to.Registry = testapp.Must[*bus.Registry](t)(bus.RegistryConfig{Events: types, Codec: unsafeCodec{}}.NewRegistry(receiver.Consumer()))
	to.Producer = testapp.Must[*outbox.Producer](t)(outbox.NewProducer(to.Registry, outbox.ProducerConfig{}))
	to.log = testapp.Must[*eventlog.Log](t)(eventlog.NewLog(to.Registry, to.Producer, eventlog.LogConfig{}))
	r, _ := to.receives(receiver)
	erased := deposit("account-1", 0)
	erased.Attributes["type"], erased.Attributes["subject"], erased.Body = eventlog.Tombstoned{}.PayloadType(), "account-1", nil
	b.put(erased, deposit("account-2", 1))
	testapp.Eventually(t, "both are acknowledged", func() bool { return sub.acked.Load() == 2 })
	if s := receiverStats(to, r); s.Accepted != 1 || s.Parked != 1 {
		t.Errorf("got %+v, want one accepted and one parked", s)
	}
}

// TestEventsKeepWhatTheyAre: their id and their headers, and reach consumers.
func TestEventsKeepWhatTheyAre(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		b, id := newBroker(), uuid.New()
		receiver := intoLog(b.subscribe())
		got := make(chan bus.Message, 1)
		to := newLedger(t, db, receiver.Consumer(), bus.Consume("tell", func(ctx context.Context, _ deposited) error {
			m, _ := bus.MessageFromContext(ctx)
			got <- *m
			return nil
		}))
		to.receives(receiver)
		to.Start(testapp.Fast())
		b.put(broker.Record{Key: "account-1", Headers: map[string]string{"tenant": "a"}, Body: []byte(`{"amount":7}`),
			ContentType: "application/json",
			Attributes:  map[string]string{"specversion": "1.0", "id": id.String(), "source": "/bank", "type": "account.deposited"}},
			broker.Record{Body: []byte(`{"amount":8}`), ContentType: "application/json",
				Attributes: map[string]string{"specversion": "1.0", "id": "2", "source": "/bank", "type": "account.deposited"}})
		m := <-got
		if m.ID != id || m.Headers["tenant"] != "a" || m.Event == nil || m.Event.Stream != "bank-account-1" || m.Event.Version != 1 {
			t.Errorf("got %+v of %+v, want the event with its id and header", m, m.Event)
		}
		testapp.Eventually(t, "the one without a key is poisoned", func() bool { return len(to.Poisoned()) == 1 })
	})
}

// TestAnEventForTwoRecipientsIsAppendedOnce: two relays may publish one event for two consumers, which
// the log does not go by.
func TestAnEventForTwoRecipientsIsAppendedOnce(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		for _, consumers := range []string{"ship", "bill", "", "bill,ship"} {
			r := deposit("account-1", 1)
			r.Attributes["consumers"] = consumers
			b.put(r)
		}
		sub := b.subscribe()
		receiver := intoLog(sub)
		to := newLedger(t, db, receiver.Consumer())
		to.receives(receiver)
		testapp.Eventually(t, "all arrived", func() bool { return sub.acked.Load() == 4 })
		if got := to.amounts()["bank-account-1"]; fmt.Sprint(got) != "[1]" {
			t.Errorf("got %v, want it once", got)
		}
	})
}

// TestNoEventLog: where there is none, on MariaDB or in the configuration, NewRunner says so.
func TestNoEventLog(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		receiver := intoLog(newBroker().subscribe())
		a := testapp.New(t, db, receiver.Consumer())
		_, receives := inbox.NewRunner(db, a.Registry, a.Producer, inbox.RunnerConfig{}, receiver)
		_, forwards := relay.NewRunner(db, a.Registry, relay.RunnerConfig{}, bank(newShelf()))
		if err := errors.Join(receives, forwards); receives == nil || forwards == nil ||
			strings.Contains(t.Name(), "mariadb") != errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("got %v, want ErrUnsupported on MariaDB, and elsewhere that there is no log", err)
		}
	})
}

// opened is an event that was called account.made, and had no owner but a name.
type opened struct {
	Owner string `json:"owner"`
}

func (opened) PayloadType() string { return "account.opened" }

// owned is opened in its second form: it had a name, and no owner.
type owned opened

func (owned) PayloadType() string { return "account.opened" }

func (owned) Upcasters() []bus.Upcaster {
	return []bus.Upcaster{func(_ context.Context, text []byte) ([]byte, error) {
		var old struct{ Name string }
		if err := json.Unmarshal(text, &old); err != nil {
			return nil, err
		}
		return json.Marshal(owned{Owner: old.Name})
	}}
}

// TestEventsArePublished: with their stream as key, in their newest form, also those that were
// recorded under a former name, and messages beside them.
func TestEventsArePublished(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		to := relay.NewForwarder("to-broker", b,
			relay.Config{Source: shop, Routes: []relay.Route{relay.To[owned]("accounts", relay.DataSchema("urn:shop:account.opened:2")),
				relay.To[order]("orders")}})
		types := testapp.Must[*eventlog.Types](t)(eventlog.NewTypes(eventlog.Event[owned]("account.made")))
		a := testapp.New(t, db)
		a.Registry = testapp.Must[*bus.Registry](t)(bus.RegistryConfig{Events: types}.NewRegistry(to))
		a.Producer = testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry, outbox.ProducerConfig{}))
		log := testapp.Must[*eventlog.Log](t)(eventlog.NewLog(a.Registry, a.Producer, eventlog.LogConfig{}))
		for _, stream := range []string{"account-1", "account-2"} {
			err := a.Producer.RunInTx(t.Context(), db, func(ctx context.Context, tx bun.Tx) error {
				return testapp.Second(log.Append(ctx, tx, stream, eventlog.NoStream, owned{Owner: "ann"}))
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		a.Exec(`UPDATE events SET event_type = 'account.made', schema = 1, data = '{"Name":"bob"}' WHERE stream = 'account-2'`)
		a.Exec(`UPDATE consumer_messages SET payload_type = 'account.made' WHERE id = (SELECT MAX(id) FROM consumer_messages)`)
		a.Produce(order{ID: "1"})
		a.Start(testapp.Fast())
		testapp.Eventually(t, "all are published", func() bool { return len(b.all()) == 3 && a.Empty() })
		records := make(map[string]broker.Record)
		for _, r := range b.all() {
			records[r.Key] = r
		}
		for stream, body := range map[string]string{"account-1": `{"owner":"ann"}`, "account-2": `{"owner":"bob"}`} {
			r := records[stream]
			if string(r.Body) != body || r.Destination != "accounts" || r.Attributes["type"] != "account.opened" ||
				r.Attributes["subject"] != stream || r.Attributes["partitionkey"] != stream {
				t.Errorf("%s: got %+v with %s, want the event", stream, r, r.Body)
			}
		}
		if got := records["account-1"].Attributes["dataschema"]; got != "urn:shop:account.opened:2" {
			t.Errorf("dataschema: got %q, want the route's", got)
		}
		if r := records[""]; r.Destination != "orders" || r.Attributes["subject"] != "" || r.Attributes["dataschema"] != "" {
			t.Errorf("message: got %+v, want no attributes of an event", r)
		}
	})
}
