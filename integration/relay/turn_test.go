package relay_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// deposit is a record of an event of a stream.
func deposit(stream string, n int) broker.Record {
	return broker.Record{Key: stream, Body: fmt.Appendf(nil, `{"amount":%d}`, n), ContentType: "application/json",
		Attributes: map[string]string{"specversion": "1.0", "id": fmt.Sprint(stream, " ", n), "source": "/bank", "type": "account.deposited"}}
}

func receiverStats(l *ledger, r *inbox.Runner) inbox.Stats {
	l.Helper()
	return testapp.Must[[]inbox.Stats](l.T)(r.Stats(l.Context()))[0]
}

// TestOneProcessAtATimeReceivesIntoTheLog: a second one stands by, and goes on when the first stops,
// or has not renewed its lease.
func TestOneProcessAtATimeReceivesIntoTheLog(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		subs := []*subscription{b.subscribe(), b.subscribe()}
		receivers := []inbox.Receiver{intoLog(subs[0]), intoLog(subs[1])}
		to := newLedger(t, db, receivers[0].Consumer())
		_, stop := to.receives(receivers[0])
		b.put(deposit("account-1", 1))
		testapp.Eventually(t, "the first receives", func() bool { return subs[0].acked.Load() == 1 })
		r, _ := to.receives(receivers[1])
		testapp.Eventually(t, "the second stands by", func() bool { return receiverStats(to, r).Standby || subs[1].active.Load() })
		b.put(deposit("account-1", 2))
		testapp.Eventually(t, "the first receives", func() bool { return subs[0].acked.Load() == 2 })
		if stats := receiverStats(to, r); !stats.Standby || stats.Paused != "" || subs[1].active.Load() {
			t.Errorf("the second: got %+v, want it to stand by", stats)
		}
		stop()
		b.put(deposit("account-1", 3))
		testapp.Eventually(t, "the second goes on", func() bool { return subs[1].acked.Load() == 3 && !receiverStats(to, r).Standby })
		if got := to.amounts()["bank-account-1"]; fmt.Sprint(got) != "[1 2 3]" {
			t.Errorf("got %v, want each once, in order", got)
		}
	})
}

// TestAProcessWhoseTurnIsOverAppendsNothing: what it has in hand is rolled back, and goes back.
func TestAProcessWhoseTurnIsOverAppendsNothing(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		sub := b.subscribe()
		receiver := intoLog(sub)
		to := newLedger(t, db, receiver.Consumer())
		r, _ := to.receives(receiver)
		b.put(deposit("account-1", 1))
		testapp.Eventually(t, "it receives", func() bool { return sub.acked.Load() == 1 })
		to.Exec("UPDATE event_subscriptions SET owner = 'another' WHERE name = 'receive:from-bank'")
		b.put(deposit("account-1", 2))
		testapp.Eventually(t, "it stands by", func() bool { return receiverStats(to, r).Standby || sub.acked.Load() == 2 })
		if n, acked := to.Count("SELECT count(*) FROM events"), sub.acked.Load(); n != 1 || acked != 1 {
			t.Errorf("got %d events, and %d acknowledged, want those of its turn alone", n, acked)
		}
		to.Exec("UPDATE event_subscriptions SET leased_until = " + testapp.In(db, -1) + " WHERE name = 'receive:from-bank'")
		testapp.Eventually(t, "its turn comes again", func() bool { return sub.acked.Load() == 2 })
	})
}

// TestSeveralProcessesShareAReceiver where the broker keeps the order among them.
func TestSeveralProcessesShareAReceiver(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		var subs []*subscription
		var to *ledger
		for range 2 {
			sub := b.subscribe()
			receiver := inbox.NewReceiver("from-bank", sub, inbox.AppendPartitionsToLog("bank"), inbox.Accept[deposited]())
			to = newLedger(t, db, receiver.Consumer())
			to.receives(receiver)
			subs = append(subs, sub)
		}
		testapp.Eventually(t, "both subscribe", func() bool { return subs[0].active.Load() && subs[1].active.Load() })
	})
}

// queue gives each batch to one of its subscribers, and once more until one acknowledges it.
type queue struct {
	batches chan []broker.Record
	acked   atomic.Int64 // records
}

func newQueue() *queue { return &queue{batches: make(chan []broker.Record, 1000)} }

// Subscribe implements broker.Subscriber.
func (q *queue) Subscribe(ctx context.Context, fn func(context.Context, []broker.Record) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case batch := <-q.batches:
			if err := fn(ctx, batch); err != nil {
				q.batches <- batch
				continue
			}
			q.acked.Add(int64(len(batch)))
		}
	}
}

// held subscribes once it is opened.
type held struct {
	broker.Subscriber
	open chan struct{}
}

func (h held) Subscribe(ctx context.Context, fn func(context.Context, []broker.Record) error) error {
	select {
	case <-ctx.Done():
		return nil
	case <-h.open:
		return h.Subscriber.Subscribe(ctx, fn)
	}
}

func refunded(id string) broker.Record {
	r := event("refund-"+id, order{ID: id})
	r.Attributes["type"] = "order.refunded"
	return r
}

func (s *service) standsBack() bool {
	closed := s.runner.Health().OpenCircuits
	return strings.Contains(s.stats().Paused, `"order.refunded"`) && len(closed) == 1 && closed[0].Consumer == "receive:from-shop"
}

// TestAnOlderInstanceLeavesANewTypeToNewerOnes: acknowledged as unknown, its records would be lost.
// Promise: relay-types
func TestAnOlderInstanceLeavesANewTypeToNewerOnes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		q := newQueue()
		older := func() *service {
			return receives(t, db, inbox.NewReceiver("from-shop", q, inbox.Accept[order]()), testapp.Consumed("ship"))
		}
		first := older()
		first.run()
		q.batches <- []broker.Record{event("1", order{ID: "1"}), refunded("1")}
		testapp.Eventually(t, "what no instance accepts is dropped", func() bool { return q.acked.Load() == 2 && first.stats().Ignored == 1 })

		gate := held{q, make(chan struct{})}
		receiver := inbox.NewReceiver("from-shop", gate, inbox.Accept[order](), inbox.Accept[testapp.Refund]())
		repay := bus.Consume("repay", func(context.Context, testapp.Refund) error { return nil })
		newer := receives(t, db, receiver, testapp.Consumed("ship"), repay)
		newer.run()
		testapp.Eventually(t, "the newer one runs", func() bool { return newer.runner.Health().Ready })
		q.batches <- []broker.Record{event("2", order{ID: "2"}), refunded("2")}
		testapp.Eventually(t, "the older one stands back", func() bool { return first.standsBack() || q.acked.Load() > 2 })
		if n, s := q.acked.Load(), first.stats(); n != 2 || s.Ignored != 1 || s.Accepted != 1 {
			t.Fatalf("got %d acknowledged and %+v, want the batch given back", n, s)
		}
		for i := range 20 {
			q.batches <- []broker.Record{refunded(fmt.Sprint(3 + i)), event(fmt.Sprint(3+i), order{ID: "n"})}
		}
		close(gate.open)
		testapp.Eventually(t, "the newer one takes all", func() bool { return q.acked.Load() == 44 })
		if got := newer.Count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'repay'"); got != 21 {
			t.Errorf("got %d messages of the new type, want 21", got)
		}
		bad := refunded("bad") // what cannot be taken is tried again by a processor of any instance
		bad.Body = nil
		q.batches <- []broker.Record{bad}
		testapp.Eventually(t, "it is parked", func() bool { return q.acked.Load() == 45 })
		first.Start(testapp.Fast())
		testapp.Eventually(t, "the older one leaves it", func() bool {
			later := testapp.In(db, 5*time.Second)
			return first.Count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'receive:from-shop' AND available_after > "+later) == 1
		})

		first.stop()
		newer.stop()
		newer.Exec("UPDATE inbox_types SET until = " + testapp.In(db, -time.Second))
		last := older()
		last.run()
		q.batches <- []broker.Record{refunded("30")}
		testapp.Eventually(t, "once no newer one is left it is dropped", func() bool { return q.acked.Load() == 46 && last.stats().Ignored == 1 })
	})
}

// TestAnOlderInstanceLeavesANewConsumersRecordsToNewerOnes: parked, none of their consumers would have them.
// Promise: relay-types
func TestAnOlderInstanceLeavesANewConsumersRecordsToNewerOnes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		q := newQueue()
		gate := held{q, make(chan struct{})}
		first := receives(t, db, inbox.NewReceiver("from-shop", q, inbox.Accept[order]()), testapp.Consumed("ship"))
		newer := receives(t, db, inbox.NewReceiver("from-shop", gate, inbox.Accept[order]()), testapp.Consumed("ship"),
			testapp.Consumed("bill", bus.Aliases("charge")))
		first.run()
		newer.run()
		testapp.Eventually(t, "the newer one runs", func() bool { return newer.runner.Health().Ready })
		forConsumers := func(id, names string) broker.Record {
			r := event(id, order{ID: id})
			r.Attributes["consumers"] = names
			return r
		}
		q.batches <- []broker.Record{forConsumers("1", "ship,charge")}
		testapp.Eventually(t, "the older one stands back", func() bool {
			return strings.Contains(first.stats().Paused, `consumer "charge"`) || q.acked.Load() > 0
		})
		if n := q.acked.Load(); n != 0 {
			t.Fatalf("got %d acknowledged and %+v, want the record given back", n, first.stats())
		}
		close(gate.open)
		testapp.Eventually(t, "the newer one takes it", func() bool { return q.acked.Load() == 1 })
		count := func(consumer string) int {
			return newer.Count("SELECT count(*) FROM consumer_messages WHERE consumer_type = ?", consumer)
		}
		if ship, bill, parked := count("ship"), count("bill"), count("receive:from-shop"); ship != 1 || bill != 1 || parked != 0 {
			t.Errorf("got %d and %d messages and %d parked, want one for each consumer", ship, bill, parked)
		}
		q.batches <- []broker.Record{forConsumers("2", "ship,gone")}
		testapp.Eventually(t, "what no instance has a consumer for is parked", func() bool { return count("receive:from-shop") == 1 })
		forged := event("3", order{ID: "3"})
		forged.Attributes["type"] = "order.placed\tship"
		q.batches <- []broker.Record{forged}
		testapp.Eventually(t, "a type that reads like an entry of a consumer is dropped", func() bool { return q.acked.Load() == 3 })
		newer.stop()
		first.stop()
	})
}

// TestAnOlderInstanceGivesItsTurnToANewerOne: of a receiver into the log one instance receives, and the order is kept.
// Promise: relay-types
func TestAnOlderInstanceGivesItsTurnToANewerOne(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		sub := b.subscribe() // each goes on where the other one was
		olderReceiver := inbox.NewReceiver("from-bank", sub, inbox.AppendToLog("bank"), inbox.Accept[opened]())
		newerReceiver := intoLog(sub)
		older := newLedger(t, db, olderReceiver.Consumer())
		newer := newLedger(t, db, newerReceiver.Consumer())
		first, _ := older.receives(olderReceiver)
		testapp.Eventually(t, "the older one receives", sub.active.Load)
		second, _ := newer.receives(newerReceiver)
		testapp.Eventually(t, "the newer one stands by", func() bool { return receiverStats(newer, second).Standby })
		b.put(deposit("account-1", 1), deposit("account-1", 2), deposit("account-1", 3))
		testapp.Eventually(t, "the newer one has all", func() bool { return sub.acked.Load() == 3 })
		if got := fmt.Sprint(newer.amounts()["bank-account-1"]); got != "[1 2 3]" {
			t.Errorf("got %s, want all, in order; the older one: %+v", got, receiverStats(older, first))
		}
	})
}
