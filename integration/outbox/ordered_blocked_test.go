package outbox_test

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

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// blocking fails for good where a customer is called parked, and for a while where it is called
// late.
func blocking(runs *atomic.Int64) func(context.Context, step) error {
	return func(_ context.Context, s step) error {
		switch {
		case strings.HasPrefix(s.Customer, "parked"):
			return bus.Permanent(errors.New("cannot be"))
		case strings.HasPrefix(s.Customer, "late"):
			return bus.Snooze(time.Hour)
		}
		runs.Add(1)
		return nil
	}
}

// TestBlockedKeysDoNotDelayOthers: new messages run at once, and those of a key that was held
// up behind all the others soon, however many cannot run in front of them, and however few
// may run at once.
func TestBlockedKeysDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]bus.ConsumerOption{"many at once": nil, "one at once": {bus.Concurrency(1)},
		"at a rate": {bus.RateLimit(20, time.Second, 1)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				var runs atomic.Int64
				a := testapp.New(t, db, bus.Consume("c", blocking(&runs), append(options, bus.Ordered(bus.BlockKey))...))
				var items []outbox.Item
				for n := 1; n <= 400; n++ {
					items = append(items, outbox.Item{Payload: step{"parked", n}}, outbox.Item{Payload: step{"late", n}})
				}
				for k := range 300 {
					items = append(items, outbox.Item{Payload: step{fmt.Sprint("late ", k), 1}})
				}
				testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, items...))
				a.Exec("UPDATE consumer_messages SET available_after = " + testapp.In(db, time.Hour) + " WHERE " + withKey(db,
					"order_key LIKE 'customer:late %'"))
				r := a.Start(testapp.Fast())
				testapp.Eventually(t, "the keys are blocked", func() bool {
					return len(a.Poisoned()) == 1 && a.Count("SELECT count(*) FROM consumer_messages WHERE "+withKey(db,
						"order_key = 'customer:late'")+" AND available_after > "+testapp.In(db, time.Minute)) == 1
				})
				for n := 1; n <= 3; n++ {
					a.Produce(step{"new", n})
					testapp.Eventually(t, "it ran", func() bool { return int(runs.Load()) == n })
					<-time.After(700 * time.Millisecond) // in which looks at everything begin and end
				}
				a.Exec("UPDATE consumer_messages SET available_after = created_at, payload = REPLACE(payload, 'late 299', 'free') WHERE " +
					withKey(db, "order_key = 'customer:late 299'"))
				a.Exec("UPDATE " + keyTable(db) + " SET order_key = 'customer:free' WHERE order_key = 'customer:late 299'")
				testapp.Eventually(t, "what is due at last ran", func() bool { return runs.Load() == 4 })
				empty := r.Stats().EmptyClaims
				<-time.After(2 * time.Second)
				if n := r.Stats().EmptyClaims - empty; n > 150 { // 40 polls; that there are none later is below, on virtual time
					t.Errorf("got %d claims in 2s that brought nothing, want few", n)
				}
				r.MustStop()
			})
		})
	}
}

// TestBlockedKeysCauseNoClaims: a poll sees that no key may run, and when one may again.
// Promise: due-starts
func TestBlockedKeysCauseNoClaims(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var runs atomic.Int64
		a := newApp(bus.Consume("c", blocking(&runs), bus.Ordered(bus.BlockKey)))
		for n := 1; n <= 1000; n++ {
			a.ProduceAt(ctx, step{"parked", n})
		}
		for n := 1; n <= 2; n++ {
			a.ProduceAt(ctx, step{"due", n})
		}
		a.Exec("UPDATE consumer_messages SET available_after = available_after + 120000000 WHERE payload LIKE '%due%1%'")
		r := a.StartWith(ctx, outbox.ProcessorConfig{})
		<-time.After(30 * time.Second)
		before := r.Stats().EmptyClaims
		<-time.After(time.Minute)
		if n := r.Stats().EmptyClaims - before; n > 0 {
			t.Errorf("got %d claims in a minute that brought nothing, want none", n)
		}
		if n := runs.Load(); n != 0 {
			t.Errorf("got %d runs, want none yet", n)
		}
		<-time.After(32 * time.Second)
		if n := runs.Load(); n != 2 {
			t.Errorf("got %d runs once the first of a key was due, want 2", n)
		}
		a.Exec("DELETE FROM poisoned_messages")
		<-time.After(2 * time.Second)
		if n := len(a.Poisoned()); n != 1 {
			t.Errorf("got %d poisoned messages, want the next one of the key", n)
		}
		r.MustStop()
	})
}

// TestAPausedConsumerTakesNoKeys: what is claimed goes on, and no more.
func TestAPausedConsumerTakesNoKeys(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var runs atomic.Int64
		a := testapp.New(t, db, bus.Consume("c", func(context.Context, step) error {
			runs.Add(1)
			<-time.After(2 * time.Millisecond)
			return nil
		}, bus.Ordered(bus.BlockKey)))
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, stepsOf(250, "hot")...))
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "it runs", func() bool { return runs.Load() > 20 })
		testapp.OK(t, a.Admin().Pause(t.Context(), db, "c", admin.PauseNote{}))
		before := int64(0)
		testapp.Poll(t, "what was claimed is over", 2*time.Minute, time.Second, func() bool { // a claim may be on its way
			ran := runs.Load()
			defer func() { before = ran }()
			return ran == before && a.Count("SELECT count(*) FROM message_claims") == 0
		})
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, stepsOf(20, "other")...))
		<-time.After(time.Second)
		if n := runs.Load() - before; n != 0 || before == 250 {
			t.Errorf("got %d runs while it was paused, after %d, want none", n, before)
		}
		testapp.OK(t, a.Admin().Resume(t.Context(), db, "c"))
		testapp.Eventually(t, "all ran", a.Empty)
		r.MustStop()
	})
}

// TestStepsFindWhatIsBehindBlockedKeys, and keys of consumers that are not ordered any more.
func TestStepsFindWhatIsBehindBlockedKeys(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var runs atomic.Int64
		a := testapp.New(t, db, bus.Consume("c", blocking(&runs), bus.Ordered(bus.BlockKey)))
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, append(stepsOf(150, "parked", "late"), stepsOf(1, "b")...)...))
		for _, ordered := range []bool{true, false} {
			if !ordered {
				produceSteps(a, "c", 1, 1)
				a = testapp.New(t, db, bus.Consume("c", blocking(&runs)))
			}
			p := testapp.Must[*outbox.Processor](t)(outbox.NewProcessor(db, a.Registry, testapp.Fast()))
			for testapp.Must[bool](t)(p.ProcessNext(t.Context())) {
			}
		}
		if runs.Load() != 2 {
			t.Errorf("got %d messages run, want those behind the blocked keys", runs.Load())
		}
	})
}

// TestReplacingAcrossAnOrder: a message that replaces one has the key of its own produce, or none, and the crashes of the old
// one.
func TestReplacingAcrossAnOrder(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		var runs atomic.Int64
		ordered := testapp.New(t, db, bus.Consume("c", blocking(&runs), bus.Ordered(bus.BlockKey)))
		plain := testapp.New(t, db, bus.Consume("c", blocking(&runs)))
		ordered.Produce(step{"a", 1}, outbox.InsertID("1"))
		plain.Produce(step{"a", 2}, outbox.InsertID("1", outbox.Replace()))
		plain.Produce(step{"b", 1}, outbox.InsertID("2"))
		plain.Exec("UPDATE consumer_messages SET crashes = 1 WHERE insert_id = '2'")
		ordered.Produce(step{"b", 2}, outbox.InsertID("2", outbox.Replace()))
		const asProduced = `SELECT count(*) FROM consumer_messages WHERE insert_id = '1' AND order_key IS NULL AND lane IS NULL AND rank IS NULL
			OR insert_id = '2' AND order_key = 'customer:b' AND lane IS NOT NULL AND rank IS NOT NULL AND crashes = 1`
		if n := plain.Count(asProduced); n != 2 || len(plain.Pending()) != 2 {
			t.Errorf("got %d of %d messages with the key of their produce and the old crashes, want both of 2", n, len(plain.Pending()))
		}
		r := ordered.Start(testapp.Fast())
		testapp.Eventually(t, "both ran", ordered.Empty)
		r.MustStop()
	})
}

// TestNoOlderMessageRunsAgainBehindNewerOnes: three messages of a key are done, the row of the first is locked, and the process
// stops. None of the others is removed before it.
// Promise: key-order
func TestNoOlderMessageRunsAgainBehindNewerOnes(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) func() *bun.DB{
		"postgres": func(t *testing.T) func() *bun.DB {
			dsn := testdb.PostgresDSN(t)
			return func() *bun.DB { return testdb.OpenPostgres(t, dsn) }
		},
		"mariadb": func(t *testing.T) func() *bun.DB {
			dsn := testdb.MariaDBDSN(t)
			return func() *bun.DB { return testdb.OpenMariaDB(t, dsn) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connect := open(t)
			var ran sync.Map
			var last atomic.Int64
			running, proceed := make(chan struct{}), make(chan struct{})
			var once sync.Once
			a := testapp.New(t, connect(), bus.Consume("c", func(_ context.Context, s step) error {
				once.Do(func() { close(running); <-proceed })
				ran.Store(s.N, true)
				last.Store(int64(s.N))
				return nil
			}, bus.Ordered(bus.BlockKey)))
			var items []outbox.Item
			for n := range 3 {
				items = append(items, outbox.Item{Payload: step{Customer: "k", N: n + 1}})
			}
			testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), a.DB, items...))
			config := testapp.Fast()
			config.DrainTimeout, config.DefaultTimeout = time.Second, time.Minute // the first waits for this test
			// Connected before: a sequence that takes too long gives back what has not begun.
			tx := testapp.Must[bun.Tx](t)(connect().BeginTx(t.Context(), nil))
			defer func() { _ = tx.Rollback() }()
			r := a.Start(config)
			<-running // all three are claimed
			testapp.OK(t, testapp.Second(tx.NewRaw("SELECT id FROM consumer_messages ORDER BY id LIMIT 1 FOR UPDATE").Exec(t.Context())))
			close(proceed)
			testapp.Eventually(t, "all have run", func() bool { _, third := ran.Load(3); return third })
			_ = r.Wait() // it may say that it could not settle all
			if left := a.Count("SELECT COUNT(*) FROM consumer_messages"); left != 3 {
				t.Errorf("got %d messages left, want all three, since the first is locked", left)
			}
			testapp.OK(t, tx.Rollback())
			r = a.Start(config)
			testapp.Eventually(t, "all are gone", a.Empty)
			r.MustStop()
			if last.Load() != 3 {
				t.Errorf("the last run: got message %d, want 3", last.Load())
			}
		})
	}
}

// TestAProcessThatSkipsPoisonedUnblocksNoKeyOfOneThatDoesNot: a rolling deploy has both, and a blocked key is blocked again once
// it is over. Only a consumer that skips everywhere goes on.
// Promise: key-order
func TestAProcessThatSkipsPoisonedUnblocksNoKeyOfOneThatDoesNot(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var mu sync.Mutex
		var ran []string
		release := func(policy bus.PoisonPolicy) *app {
			return testapp.New(t, db, bus.Consume("c", func(_ context.Context, o order) error {
				mu.Lock()
				defer mu.Unlock()
				ran = append(ran, o.ID)
				if o.ID == "bad" {
					return bus.Permanent(errors.New("no luck"))
				}
				return nil
			}, bus.Ordered(policy)))
		}
		blocks, skips := release(bus.BlockKey), release(bus.SkipPoisoned)
		run := func(a *app, want ...string) {
			t.Helper()
			steps(t.Context(), a, newProcessor(a, testapp.Fast()))
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(ran, want) {
				t.Fatalf("ran: got %q, want %q", ran, want)
			}
		}
		blocked := func() int {
			t.Helper()
			queues, err := blocks.Admin().Queues(t.Context(), db, "c")
			if err != nil {
				t.Fatal(err)
			}
			return int(queues[0].BlockedKeys)
		}
		blocks.Produce(order{ID: "bad"}, outbox.OrderingKey("k"))
		run(blocks, "bad")
		skips.Produce(order{ID: "other"}, outbox.OrderingKey("l"))
		run(skips, "bad", "other")
		blocks.Produce(order{ID: "behind"}, outbox.OrderingKey("k"))
		run(blocks, "bad", "other")
		if n := blocked(); n != 1 {
			t.Errorf("blocked keys: got %d, want 1", n)
		}
		run(skips, "bad", "other", "behind")
		if n := blocked(); n != 0 {
			t.Errorf("blocked keys of a consumer that skips: got %d, want none", n)
		}
		store := testapp.Must[*poison.Store](t)(poison.NewStore(skips.Registry))
		if poisoned := blocks.Poisoned(); len(poisoned) != 1 || !strings.Contains(poisoned[0].Payload, "bad") {
			t.Fatalf("poisoned: got %+v, want the first", poisoned)
		}
		if n, err := store.Discard(t.Context(), db, blocks.Poisoned()[0].ID); n != 1 || err != nil {
			t.Errorf("discard: got %d, %v, want 1", n, err)
		}
	})
}

// TestAFailedLookAtKeysStopsNothingElse: claims of lost processes are recovered nevertheless.
// Promise: held-up
func TestAFailedLookAtKeysStopsNothingElse(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	var ran atomic.Int64
	a := testapp.New(t, testdb.OpenPostgres(t, dsn), testapp.Counting("c", &ran, bus.Ordered(bus.SkipPoisoned)))
	a.Produce(order{ID: "1"}, outbox.OrderingKey("1"))
	a.Exec("INSERT INTO message_claims (owner, solo, claimed_at, leased_until, consumer_type, message_ids, lanes) " +
		"SELECT 'dead', FALSE, now(), now() - interval '1 minute', 'c', array_agg(id), array_agg(lane) FROM consumer_messages")
	const look = "AS look, 0 AS crashes, 0 AS next WHERE"
	b := *a
	b.DB = testdb.OpenRewritten(t, dsn, testdb.Replacing(t, look, look+" 1/0 = 1 AND"))
	config := testapp.Fast()
	config.LeaseDuration = 2 * time.Second
	r := b.Start(config)
	testapp.Eventually(t, "the claim of the lost process is over", func() bool {
		return a.Count("SELECT count(*) FROM message_claims WHERE owner = 'dead'") == 0
	})
	r.MustStop()
}
