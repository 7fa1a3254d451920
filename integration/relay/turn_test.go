package relay_test

import (
	"fmt"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
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
