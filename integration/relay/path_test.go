package relay_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestFromOneServiceToAnother: what is produced in one database is consumed in another, with
// its id, key and headers.
func TestFromOneServiceToAnother(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		sender := testapp.New(t, testdb.SQLite(t), publishes(b))
		var got seen
		receiver := receives(t, db, inbox.NewReceiver("from-shop", b.subscribe(), inbox.Accept[order]()), got.consumer("ship"))
		receiver.run()
		receiver.Start(testapp.Fast())
		receipt := sender.Produce(order{ID: "1", N: 7}, outbox.OrderingKey("customer:1"), outbox.Header("tenant", "acme"),
			outbox.Header("odd name", "a\nb"))
		sender.Start(testapp.Fast())
		testapp.Eventually(t, "it is consumed", func() bool { return len(got.all()) == 1 })
		m := got.all()[0]
		if m.ID != receipt.MessageID || m.Value.(order) != (order{ID: "1", N: 7}) || m.Headers["tenant"] != "acme" ||
			m.Headers["odd name"] != "a\nb" || len(m.Headers) != 2 {
			t.Errorf("got %+v with headers %q, want what was produced", m, m.Headers)
		}
		record := b.all()[0]
		if record.Destination != "orders" || record.Key != "customer:1" || record.ContentType != "application/json" {
			t.Errorf("got record %+v, want it for orders", record)
		}
		for name, want := range map[string]string{"specversion": "1.0", "id": receipt.MessageID.String(), "source": shop,
			"type": "order.placed", "partitionkey": "customer:1"} {
			if record.Attributes[name] != want {
				t.Errorf("attribute %s: got %q, want %q", name, record.Attributes[name], want)
			}
		}
		if record.Attributes["time"] == "" {
			t.Error("attribute time: got none, want one")
		}
		testapp.Eventually(t, "both are empty", func() bool { return sender.Empty() && receiver.Empty() })
	})
}

// TestRepeatedDeliveriesHaveOneEffect: everything is delivered three times, and each order has one effect.
// Promise: relay-once
func TestRepeatedDeliveriesHaveOneEffect(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		const n = 500
		b := newBroker()
		sender := testapp.New(t, testdb.SQLite(t), publishes(b))
		sub := b.subscribe()
		sub.again = 2
		receiver := receives(t, db, inbox.NewReceiver("from-shop", sub, inbox.Accept[order]()), effects(t, db, "ship"))
		receiver.run()
		receiver.Start(testapp.Fast())
		sender.ProduceMany(n)
		sender.Start(testapp.Fast())
		testapp.Eventually(t, "all is acknowledged", func() bool { return sub.acked.Load() == n })
		testapp.Eventually(t, "all is consumed", receiver.Empty)
		if w := wrong(receiver.app, n, "ship"); w != 0 {
			t.Errorf("effects other than one: got %d, want 0", w)
		}
		if s := receiver.stats(); s.Accepted != n || s.Duplicates != 2*n || s.InboxSize != n || s.Ignored != 0 || s.Parked != 0 {
			t.Errorf("stats: got %+v, want %d new, and each twice more", s, n)
		}
	})
}

// TestALostAcknowledgementIsDeliveredAgain, and so is a batch whose process vanished between
// the commit and the acknowledgement; and a second process that takes over has what the first had.
// Promise: relay-once
func TestALostAcknowledgementIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		const n = 300
		b := newBroker()
		for i := range n {
			b.put(event(fmt.Sprint(i), order{ID: fmt.Sprint(i)}))
		}
		var calls int
		first := b.subscribe()
		first.between = func() error { // every second one
			if calls++; calls%2 == 1 {
				return errLost
			}
			return nil
		}
		ship := effects(t, db, "ship")
		receiver := receives(t, db, inbox.NewReceiver("from-shop", first, inbox.Accept[order]()), ship)
		receiver.run()
		testapp.Eventually(t, "some is acknowledged", func() bool { return first.acked.Load() >= 100 })
		receiver.stop()
		other := receives(t, db, inbox.NewReceiver("from-shop", b.subscribe(), inbox.Accept[order]()), ship)
		other.run()
		other.Start(testapp.Fast())
		testapp.Eventually(t, "all arrived", func() bool { s := other.stats(); return s.Accepted+s.Duplicates == n && other.Empty() })
		if w := wrong(other.app, n, "ship"); w != 0 {
			t.Errorf("effects other than one: got %d, want 0", w)
		}
		if given := first.given.Load(); given == 0 {
			t.Error("got no batch that came back, want some")
		}
	})
}

// TestEachReceiverHasItsOwnInbox: the same events are new to a receiver of another name.
// Promise: relay-once
func TestEachReceiverHasItsOwnInbox(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		b.put(event("1", order{ID: "1"}))
		var got seen
		for _, name := range []string{"one", "two", "two"} {
			sub := b.subscribe()
			s := receives(t, db, inbox.NewReceiver(name, sub, inbox.Accept[order]()), got.consumer("ship"))
			s.run()
			testapp.Eventually(t, "it is acknowledged", func() bool { return sub.acked.Load() == 1 })
			s.stop()
		}
		a := testapp.New(t, db, got.consumer("ship"))
		if n := len(a.Pending()); n != 2 {
			t.Errorf("got %d messages, want one for each name", n)
		}
	})
}

// event is a record of an order.
func event(id string, o order) broker.Record {
	return broker.Record{Destination: "orders", ID: id, ContentType: "application/json",
		Attributes: map[string]string{"specversion": "1.0", "id": id, "source": shop, "type": "order.placed"},
		Body:       fmt.Appendf(nil, `{"id":%q,"n":%d}`, o.ID, o.N)}
}

// TestTwoProcessesReceiveTheSame: both are given everything, in batches that overlap, and each
// order has one effect.
func TestTwoProcessesReceiveTheSame(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		const n = 600
		b := newBroker()
		ship := effects(t, db, "ship")
		var services []*service
		var subs []*subscription
		for i := range 3 {
			sub := b.subscribe()
			sub.batch = 30 + 7*i
			services, subs = append(services, receives(t, db, inbox.NewReceiver("from-shop", sub, inbox.Accept[order]()), ship)), append(subs, sub)
		}
		for _, s := range services {
			s.run()
		}
		services[0].Start(testapp.Fast())
		var wg sync.WaitGroup
		for part := range 3 {
			wg.Go(func() {
				for i := part; i < n; i += 3 {
					b.put(event(fmt.Sprint(i), order{ID: fmt.Sprint(i)}))
				}
			})
		}
		wg.Wait()
		for _, sub := range subs {
			testapp.Eventually(t, "all is acknowledged", func() bool { return sub.acked.Load() == n })
		}
		testapp.Eventually(t, "all is consumed", services[0].Empty)
		if w := wrong(services[0].app, n, "ship"); w != 0 {
			t.Errorf("effects other than one: got %d, want 0", w)
		}
		var fresh int64
		for _, s := range services {
			fresh += s.stats().Accepted
		}
		if fresh != n {
			t.Errorf("new: got %d of all processes, want %d", fresh, n)
		}
	})
}

// TestAnInboxThatIsAway: while its table cannot be written all goes back; then all is taken over.
func TestAnInboxThatIsAway(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		const n = 90
		b := newBroker()
		for i := range n {
			b.put(event(fmt.Sprint(i), order{ID: fmt.Sprint(i)}))
		}
		for _, table := range []string{"inbox_messages", "consumer_messages"} {
			sub := b.subscribe()
			s := receives(t, db, inbox.NewReceiver("from-"+table, sub, inbox.Accept[order]()), testapp.Consumed("ship"))
			s.run()
			testapp.Eventually(t, "all is acknowledged", func() bool { return sub.acked.Load() == n })
			s.Exec("ALTER TABLE " + table + " RENAME TO away")
			b.put(event(table, order{ID: table}))
			testapp.Eventually(t, "it goes back", func() bool { return sub.given.Load() > 0 })
			if acked := sub.acked.Load(); acked != n {
				t.Errorf("acknowledged: got %d, want %d", acked, n)
			}
			s.Exec("ALTER TABLE away RENAME TO " + table)
			testapp.Eventually(t, "it is taken over", func() bool {
				st := s.stats()
				return sub.acked.Load() == n+1 && st.Accepted == n+1 &&
					st.Paused == ""
			})
			s.stop()
			b = newBroker()
			for i := range n {
				b.put(event(fmt.Sprint(i), order{ID: fmt.Sprint(i)}))
			}
		}
	})
}
