package relay_test

import (
	"fmt"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// TestAConsumerMovesToAnotherService: while orders come in, an instance that still has the
// consumer and one that forwards to the new service run side by side, and then the latter alone.
// Each order has one effect, wherever that is; another consumer of the new service is not told.
func TestAConsumerMovesToAnotherService(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		const n = 300
		b := newBroker()
		target := receives(t, testdb.SQLite(t), relay.Receive("from-shop", b.subscribe(), relay.Accept[order]()), effects(t, db, "charge-card"), testapp.Consumed("unrelated"))
		effects(t, target.DB, "charge-card") // its table, too
		target.run()
		target.Start(testapp.Fast())
		produce := func(a *app, from, to int) {
			for i := from; i < to; i++ {
				a.Produce(order{ID: fmt.Sprint(i)})
			}
		}
		old := testapp.New(t, db, effects(t, db, "charge-card"))
		produce(old, 0, n/3)
		forwards := testapp.New(t, db, publishes(b, bus.Aliases("charge-card"), relay.For("charge-card")))
		running := old.Start(testapp.Fast())
		forwards.Start(testapp.Fast())
		produce(forwards, n/3, 2*n/3)
		produce(old, 2*n/3, n)
		running.MustStop()
		testapp.Eventually(t, "all are gone", func() bool { return old.Empty() && target.stats().New == int64(len(b.all())) })
		testapp.Eventually(t, "all have run", target.Empty)
		here, there := old.Count("SELECT count(*) FROM effects"), target.Count("SELECT count(*) FROM effects")
		if here+there != n || there == 0 || there != len(b.all()) {
			t.Errorf("effects: got %d here and %d there, want %d in all, and some there", here, there, n)
		}
		if left := target.Count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'unrelated'"); left != 0 {
			t.Errorf("another consumer: got %d messages, want none", left)
		}
	})
}

// TestKeysOfDeclaredRelays: a program that only declares a relay stores keys for it.
func TestKeysOfDeclaredRelays(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		producer := testapp.New(t, db, bus.Declare[order]("to-broker", bus.Forwards()), testapp.Consumed("plain"))
		producer.Produce(order{ID: "1"}, outbox.Key("customer:1"), outbox.Header("tenant", "acme"))
		relaying := testapp.New(t, db, publishes(b))
		relaying.Start(testapp.Fast())
		testapp.Eventually(t, "it is published", func() bool { return len(b.all()) == 1 })
		if r := b.all()[0]; r.Key != "customer:1" || len(r.Headers) != 1 || r.Headers["tenant"] != "acme" {
			t.Errorf("got %+v, want its key, and no header of the library", r)
		}
	})
}
