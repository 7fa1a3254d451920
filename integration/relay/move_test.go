package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
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
		target := receives(t, testdb.SQLite(t), inbox.NewReceiver("from-shop", b.subscribe(), inbox.Accept[order]()),
			effects(t, db, "charge-card"), testapp.Consumed("unrelated"))
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
		forwards := testapp.New(t, db, publishesWith(b, relay.Config{Recipients: []string{"charge-card"}}, bus.Aliases("charge-card")))
		running := old.Start(testapp.Fast())
		forwards.Start(testapp.Fast())
		produce(forwards, n/3, 2*n/3)
		produce(old, 2*n/3, n)
		running.MustStop()
		testapp.Eventually(t, "all are gone", func() bool { return old.Empty() && target.stats().Accepted == int64(len(b.all())) })
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

// TestFormerNamesOfARelayAndOfConsumers: what waits under a former name of the relay is for all that it is for, and what waits
// under that of a consumer for that one alone, which may have another name at the new service.
func TestFormerNamesOfARelayAndOfConsumers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var charged, sent atomic.Int64
		b := newBroker()
		target := receives(t, testdb.SQLite(t), inbox.NewReceiver("from-shop", b.subscribe(), inbox.Accept[order]()),
			testapp.Counting("charge", &charged, bus.Aliases("charge-card")), testapp.Counting("send-receipt", &sent))
		target.run()
		target.Start(testapp.Fast())
		testapp.New(t, db, bus.Declare[order]("to-payments", bus.Forwards())).Produce(order{ID: "of the relay"})
		testapp.New(t, db, testapp.Consumed("charge-card")).Produce(order{ID: "of the consumer"})
		shop := testapp.New(t, db, publishesWith(b, relay.Config{Recipients: []string{"charge-card", "send-receipt"}},
			bus.Aliases("to-payments", "charge-card")))
		shop.Start(testapp.Fast())
		shop.Produce(order{ID: "of today"})
		testapp.Eventually(t, "all are taken over", func() bool { return shop.Empty() && target.stats().Accepted+target.stats().Parked == 3 })
		testapp.Eventually(t, "all have run", target.Empty)
		if charged.Load() != 3 || sent.Load() != 2 || target.stats().Parked != 0 {
			t.Errorf("got %d of charge, %d of send-receipt and %d parked, want 3, 2 and none", charged.Load(), sent.Load(), target.stats().Parked)
		}
	})
}

// TestKeysOfDeclaredRelays: a program that only declares a relay stores keys for it.
func TestKeysOfDeclaredRelays(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		producer := testapp.New(t, db, bus.Declare[order]("to-broker", bus.Forwards()), testapp.Consumed("plain"))
		producer.Produce(order{ID: "1"}, outbox.OrderingKey("customer:1"), outbox.Header("tenant", "acme"))
		relaying := testapp.New(t, db, publishes(b))
		relaying.Start(testapp.Fast())
		testapp.Eventually(t, "it is published", func() bool { return len(b.all()) == 1 })
		if r := b.all()[0]; r.Key != "customer:1" || len(r.Headers) != 1 || r.Headers["tenant"] != "acme" {
			t.Errorf("got %+v, want its key, and no header of the library", r)
		}
	})
}

// TestForwardedMessagesAreNotConsumedLocally: an instance that forwards vanishes while the broker has its
// messages already. An old one, which has the consumer, leaves them alone; a new one publishes them
// again, each under its id and for the consumer that it was produced for, however often it takes.
// Promise: relay-move
func TestForwardedMessagesAreNotConsumedLocally(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		const n = 20
		var runs atomic.Int64
		old := testapp.New(t, db, testapp.Counting("charge-card", &runs), testapp.Counting("send-receipt", &runs))
		for i := range n {
			old.Produce(order{ID: fmt.Sprint(i)}, outbox.InsertID(fmt.Sprint(i)), outbox.Header("tenant", "acme"))
		}
		move := relay.Config{Recipients: []string{"charge-card", "send-receipt"}}
		former := bus.Aliases("charge-card", "send-receipt")
		b, has, free := newBroker(), make(chan struct{}, 1), make(chan struct{})
		stuck := publisher(func(_ context.Context, records []broker.Record) []error {
			if b.put(records...); len(b.all()) == 2*n {
				has <- struct{}{}
			}
			<-free
			return slices.Repeat([]error{broker.ErrUnavailable}, len(records))
		})
		// Each message has a call and a worker of its own: calls that a busy machine splits would wait for the first, which stays.
		apart := move
		apart.PublishTimeout = time.Minute
		config := testapp.Fast()
		config.Concurrency = 2 * n
		vanishes := testapp.New(t, db, publishesWith(stuck, apart, former, bus.BatchSize(1), bus.Concurrency(2*n))).Start(config)
		<-has
		old.Exec("DELETE FROM message_claims") // as if the lease were over
		processor := testapp.Must[*outbox.Processor](t)(outbox.NewProcessor(db, old.Registry, testapp.Fast()))
		if ran := testapp.Must[bool](t)(processor.ProcessNext(t.Context())); ran || runs.Load() != 0 {
			t.Errorf("the old instance: got it to run %d messages, want none", runs.Load())
		}
		close(free)
		_ = vanishes.Wait()
		var failed atomic.Int64
		b.failWith(func(broker.Record) error {
			if failed.Add(1) <= n {
				return errors.New("odd")
			}
			return nil
		})
		testapp.New(t, db, publishesWith(b, move, former)).Start(testapp.Fast())
		testapp.Eventually(t, "all are gone", old.Empty)
		ids := make(map[string]int)
		for _, r := range b.all() {
			ids[r.ID]++
			if len(r.Headers) != 1 || r.Headers["tenant"] != "acme" {
				t.Fatalf("got %+v, want no header of the library", r)
			}
		}
		for id, times := range ids {
			if _, name, _ := strings.Cut(id, "/to-broker/"); len(ids) != 2*n || times < 2 || name != "charge-card" && name != "send-receipt" {
				t.Fatalf("got %d ids, %s %d times, want %d, at least twice, each for the consumer of its own", len(ids), id, times, 2*n)
			}
		}
	})
}

// TestWhatCannotBeRenamedIsNotForwarded: the messages are given back as they were, and other
// consumers go on.
func TestWhatCannotBeRenamedIsNotForwarded(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		const n = 30
		old := testapp.New(t, db, testapp.Consumed("charge-card"))
		for i := range n {
			old.Produce(order{ID: fmt.Sprint(i)})
		}
		for _, statement := range refusal(db) {
			old.Exec(statement)
		}
		before := old.Pending()
		b := newBroker()
		forwards := testapp.New(t, db, publishes(b, bus.Aliases("charge-card")), testapp.Consumed("other"))
		r := forwards.Start(testapp.Fast())
		forwards.Produce(order{ID: "new"})
		testapp.Eventually(t, "it has tried twice, and the other consumer is done", func() bool {
			return len(b.all()) > 1 || r.Stats().Claimed > 2*n &&
				old.Count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'other'") == 0
		})
		if after := old.Pending(); len(after) < n || !slices.Equal(after[:n], before) || len(b.all()) > 1 {
			t.Fatalf("got %d published, and %d messages left, want none of the %d, as they were", len(b.all()), len(after), n)
		}
		old.Exec(map[bool]string{true: "DROP TRIGGER refuse ON consumer_messages",
			false: "DROP TRIGGER refuse"}[db.Dialect().Name() == dialect.PG])
		testapp.Eventually(t, "all are published", func() bool { return old.Empty() && len(b.all()) == n+1 })
	})
}

// TestWhatIsLockedIsForwardedLater: somebody locks a message right after it was claimed. The others
// are published, and that one is once it is free.
func TestWhatIsLockedIsForwardedLater(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) *bun.DB{"postgres": testdb.Postgres, "mariadb": testdb.MariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 5
			old := testapp.New(t, open(t), testapp.Consumed("charge-card"))
			for i := range n {
				old.Produce(order{ID: fmt.Sprint(i)})
			}
			locked := old.Pending()[2].ID
			holder := testapp.Must[bun.Tx](t)(old.DB.BeginTx(context.WithoutCancel(t.Context()), nil))
			t.Cleanup(func() { _ = holder.Rollback() })
			var once sync.Once
			hook := testapp.QueryHook(func(_ context.Context, query string) {
				if strings.Contains(query, "m.attempts") && strings.Contains(query, "FOR UPDATE") && !strings.Contains(query, "available_after") {
					once.Do(func() {
						if _, err := holder.NewRaw("SELECT id FROM consumer_messages WHERE id = ? FOR UPDATE",
							locked).Exec(context.WithoutCancel(t.Context())); err != nil {
							t.Error(err)
						}
					})
				}
			})
			b := newBroker()
			testapp.New(t, old.DB.WithQueryHook(hook), publishes(b, bus.Aliases("charge-card"))).Start(testapp.Fast())
			testapp.Eventually(t, "the others are published, and it is given back", func() bool {
				return len(b.all()) == n || len(b.all()) == n-1 && old.Count("SELECT count(*) FROM message_claims") == 0
			})
			if left := old.Pending(); len(left) != 1 || left[0].ID != locked || len(b.all()) != n-1 {
				t.Errorf("got %d published, and %+v left, want %d, and message %d", len(b.all()), left, n-1, locked)
			}
			if got := old.Count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'charge-card'"); got != 1 {
				t.Errorf("messages under the former name: got %d, want the one that is locked", got)
			}
			testapp.OK(t, holder.Rollback())
			testapp.Eventually(t, "it is published, too", func() bool { return old.Empty() && len(b.all()) == n })
		})
	}
}

// refusal makes a database that takes no other name for a message.
func refusal(db *bun.DB) []string {
	switch db.Dialect().Name() {
	case dialect.PG:
		return []string{"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$",
			"CREATE TRIGGER refuse BEFORE UPDATE OF consumer_type ON consumer_messages FOR EACH ROW EXECUTE FUNCTION refuse()"}
	case dialect.MySQL:
		return []string{"CREATE TRIGGER refuse BEFORE UPDATE ON consumer_messages FOR EACH ROW IF NEW.consumer_type <> OLD.consumer_type THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused'; END IF"}
	}
	return []string{"CREATE TRIGGER refuse BEFORE UPDATE OF consumer_type ON consumer_messages BEGIN SELECT RAISE(ABORT, 'refused'); END"}
}

// TestMessagesThatKeepTheFormerName while it runs: what does not forward, and what a key keeps in order.
func TestMessagesThatKeepTheFormerName(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		old := testapp.New(t, db, testapp.Consumed("charge-card", bus.Ordered(bus.BlockKey)), testapp.Consumed("bill"), testapp.Consumed("note"))
		old.Produce(order{ID: "1"}, outbox.OrderingKey("customer:1"))
		names := make(chan []string, 2)
		look := func() {
			var rows []string
			if err := db.NewRaw("SELECT consumer_type FROM consumer_messages ORDER BY 1").Scan(context.WithoutCancel(t.Context()),
				&rows); err != nil {
				t.Error(err)
			}
			names <- rows
		}
		b, all := newBroker(), make(chan struct{})
		var here atomic.Int64
		meet := func() { // all three run at once
			if here.Add(1) == 3 {
				look()
				close(all)
			}
			<-all
		}
		forwards := func(name, from string) bus.Consumer {
			return relay.NewForwarder(name, publisher(func(_ context.Context, records []broker.Record) []error {
				meet()
				b.put(records...)
				return nil
			}), relay.Config{Source: shop, Routes: []relay.Route{relay.To[order]("orders")}}, bus.Aliases(from))
		}
		testapp.New(t, db, forwards("to-charge", "charge-card"), forwards("to-note", "note"),
			bus.Consume("make-bill", func(context.Context, order) error { meet(); return nil }, bus.Aliases("bill"))).Start(testapp.Fast())
		got := <-names
		if want := []string{"bill", "charge-card", "to-note"}; !slices.Equal(got, want) {
			t.Errorf("names while they run: got %v, want %v", got, want)
		}
		testapp.Eventually(t, "all are gone", old.Empty)
	})
}
