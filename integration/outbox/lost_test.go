package outbox_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// proxied is a database behind a proxy, and the same one past it.
func proxied(t *testing.T) (proxy *chaos.Proxy, through, past *bun.DB) {
	t.Helper()
	dsn := testdb.PostgresDSN(t)
	proxy, way, err := chaos.NewProxyTo(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return proxy, testdb.OpenPostgres(t, way), testdb.OpenPostgres(t, dsn)
}

// TestALostCommitCostsNoAttempt cuts the connection of a transactional consumer
// before its COMMIT reaches the server: it is no one's failure, so nothing is counted.
func TestALostCommitCostsNoAttempt(t *testing.T) {
	t.Parallel()
	proxy, db, direct := proxied(t)
	var runs, lost, charged atomic.Int64
	a := testapp.New(t, db, outbox.ConsumeTx("c", func(ctx context.Context, _ bun.Tx, _ order) error {
		if m, _ := bus.MessageFromContext(ctx); m.Attempt > 1 {
			charged.Add(1)
		}
		runs.Add(1)
		return nil
	}))
	a.ProduceMany(20)
	proxy.Decide(func(sql string) chaos.Fault {
		if strings.EqualFold(sql, "commit") && runs.Load() > 0 && lost.Add(1) <= 10 {
			return chaos.DropQuery
		}
		return chaos.Forward
	})
	watcher := *a
	watcher.DB = direct
	r := a.Start(testapp.Fast())
	testapp.Eventually(t, "everything is consumed", watcher.Empty)
	r.MustStop()
	if lost.Load() < 10 || charged.Load() > 0 {
		t.Errorf("runs after a lost commit that count as another attempt: got %d, want none of %d commits lost", charged.Load(),
			min(lost.Load(), 10))
	}
}

// TestATrickleDoesNotPutOffTheKeeper: claims whose commit was never confirmed are given back
// while messages come and go, one at a time.
func TestATrickleDoesNotPutOffTheKeeper(t *testing.T) {
	t.Parallel()
	proxy, db, direct := proxied(t)
	var recorded atomic.Bool
	var lost atomic.Int64
	var ran sync.Map // of the numbers of messages
	a := testapp.New(t, db, bus.Consume("c", func(_ context.Context, o order) error { ran.Store(o.N, true); return nil }))
	watcher := *a
	watcher.DB = direct
	config := testapp.Fast()
	config.LeaseDuration = 4 * time.Second
	r := a.Start(config)
	produced := 0
	produce := func() { watcher.Produce(order{N: produced}); produced++ }
	allRan := func(n int) bool {
		for i := range n {
			if _, ok := ran.Load(i); !ok {
				return false
			}
		}
		return true
	}
	produce()
	testapp.Eventually(t, "the first ran", func() bool { return allRan(1) })
	proxy.Decide(func(sql string) chaos.Fault {
		if strings.Contains(sql, `INSERT INTO "message_claims"`) {
			recorded.Store(true)
		} else if strings.EqualFold(sql, "commit") && recorded.Load() && lost.Add(1) == 1 {
			return chaos.DropReply
		}
		return chaos.Forward
	})
	before := 0 // messages from before the commit was lost
	testapp.Poll(t, "the claim is given back beside others", 2*time.Minute, 40*time.Millisecond, func() bool {
		if before == 0 && lost.Load() > 0 {
			before = produced
		}
		if before > 0 && allRan(before) {
			return true
		}
		produce()
		return false
	})
	r.MustStop()
	if s := r.Stats(); s.Recovered != 0 || s.Crashed != 0 {
		t.Errorf("got %d claims recovered and %d crashes, want the claim given back", s.Recovered, s.Crashed)
	}
}

// TestALeaseLostForOneOfABatchCostsTheOthersNothing: their call was cancelled, and they have not
// had their chance.
func TestALeaseLostForOneOfABatchCostsTheOthersNothing(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var seen calls
		var nth atomic.Int64
		running := make(chan struct{})
		a := newApp(bus.ConsumeBatch("c", func(ctx context.Context, orders []order) error {
			seen.add(orders)
			if nth.Add(1) > 1 {
				return nil
			}
			close(running)
			<-ctx.Done()
			return context.Cause(ctx)
		}, bus.BatchSize(2), bus.BatchWait(time.Second), bus.MaxAttempts(1), bus.Timeout(time.Minute)))
		config := alone()
		config.LeaseDuration = time.Second
		r := a.StartWith(ctx, config)
		a.ProduceAt(ctx, order{ID: "1"})
		testapp.Poll(t, "one is claimed", time.Minute, time.Millisecond, func() bool { return r.Stats().Claimed == 1 })
		a.ProduceAt(ctx, order{ID: "2"})
		<-running
		if n := a.Count("SELECT count(*) FROM message_claims"); n != 2 || len(seen.all[0]) != 2 {
			t.Fatalf("got %d claims, and %v in the call, want two of each", n, seen.all[0])
		}
		a.Exec("DELETE FROM message_claims WHERE id = ?", a.Count("SELECT min(id) FROM message_claims"))
		testapp.Sooner(t, "nothing waits", a.Empty)
		r.MustStop()
		for _, p := range a.Poisoned() {
			t.Errorf("poisoned, since the lease of another was lost: %s: %s", p.Payload, p.Errors)
		}
		if runs := seen.runs(); runs["1"] != 2 || runs["2"] != 2 {
			t.Errorf("got calls %v, want both once more", seen.all)
		}
	})
}

// TestALostLeaseIsNoFailureToABreaker: such a run is given back, without an attempt.
func TestALostLeaseIsNoFailureToABreaker(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var runs atomic.Int64
		atOnce := bus.CircuitBreaker(bus.CircuitBreakerConfig{MinRequests: 1, Cooldown: time.Minute})
		a := testapp.New(t, db, bus.Consume("c", func(ctx context.Context, _ order) error {
			if runs.Add(1) > 4 {
				return nil
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}, atOnce, bus.Timeout(time.Minute)), bus.Consume("broken", func(context.Context, refund) error { return errors.New("no") }, atOnce))
		a.ProduceMany(4)
		config := testapp.Fast()
		config.LeaseDuration = time.Second
		r := a.Start(config)
		testapp.Eventually(t, "all run", func() bool { return runs.Load() == 4 })
		a.Exec("DELETE FROM message_claims")
		testapp.Eventually(t, "all are cancelled", func() bool { return r.Stats().Running == 0 || runs.Load() > 4 })
		a.Produce(refund{ID: "1"}) // a failure that comes after, and is counted with them
		testapp.Eventually(t, "the breaker of what failed is open", func() bool { return len(r.Health().OpenCircuits) > 0 })
		for _, closed := range r.Health().OpenCircuits {
			if closed.Consumer != "broken" {
				t.Errorf("the breaker is open, of runs that lost their lease: %+v", closed)
			}
		}
		if len(r.Health().OpenCircuits) == 1 {
			testapp.Eventually(t, "all ran again", func() bool { return runs.Load() == 8 && len(a.Pending()) <= 1 })
		}
		r.MustStop()
	})
}

// TestAnInterruptedProduceIsAllOrNothing ends the context of a produce at some moment of
// it. SQLite then rolls the whole transaction back by itself, and what is written next
// must not be committed alone.
func TestAnInterruptedProduceIsAllOrNothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var runs atomic.Int64
		a := testapp.New(t, db, testapp.Counting("c", &runs))
		a.Exec("CREATE TABLE notes (n int)")
		many := make([]outbox.Item, 3000)
		for i := range many {
			many[i].Payload = order{ID: "many"}
		}
		for _, items := range [][]outbox.Item{many, many[:400]} { // several statements, and one
			for try := range 25 {
				a.Exec("DELETE FROM notes")
				a.Exec("DELETE FROM consumer_messages")
				err := a.Producer.RunInTx(a.Context(), db, func(ctx context.Context, tx bun.Tx) error {
					if _, err := tx.NewRaw("INSERT INTO notes VALUES (1)").Exec(ctx); err != nil {
						return err
					}
					short, cancel := context.WithTimeout(ctx, time.Duration(try)*time.Millisecond)
					defer cancel()
					_, _ = a.Producer.ProduceMany(short, tx, items...)
					_, err := tx.NewRaw("INSERT INTO notes VALUES (2)").Exec(ctx)
					return err
				})
				notes := a.Count("SELECT count(*) FROM notes")
				messages := a.Count("SELECT count(*) FROM consumer_messages")
				switch {
				case err == nil && (notes != 2 || messages != 0 && messages != len(items)),
					err != nil && (notes != 0 || messages != 0):
					t.Fatalf("%d items, after %d ms: got error %v, %d notes and %d messages, want all or nothing", len(items), try, err, notes, messages)
				}
			}
		}
	})
}

// TestASlowLookForTheNextMessageStopsNothingElse: many dead index entries of later messages make it slow. Claims of lost
// processes are recovered nevertheless, their messages run, and running ones can be stopped.
// Promise: held-up
func TestASlowLookForTheNextMessageStopsNothingElse(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	var running, ran atomic.Int64
	a := testapp.New(t, testdb.OpenPostgres(t, dsn), testapp.Counting("c", &ran),
		bus.Consume("stopped", func(ctx context.Context, _ testapp.Refund) error {
			running.Add(1)
			<-ctx.Done()
			return context.Cause(ctx)
		}, bus.Timeout(10*time.Minute)))
	a.Produce(order{ID: "1"})
	a.Exec("INSERT INTO message_claims (owner, solo, claimed_at, leased_until, message_ids) " +
		"SELECT 'dead', FALSE, now(), now() - interval '1 minute', array_agg(id) FROM consumer_messages")
	a.Produce(testapp.Refund{})
	const next = "AND m.available_after > statement_timestamp() ORDER BY"
	b := *a
	b.DB = testdb.OpenRewritten(t, dsn, testdb.Replacing(t, next, "AND (SELECT pg_sleep(60)) IS NOT NULL "+next))
	config := testapp.Fast()
	config.LeaseDuration = 2 * time.Second
	r := b.Start(config)
	testapp.Eventually(t, "the message of the lost process runs", func() bool { return ran.Load() == 1 })
	testapp.Eventually(t, "the other one runs", func() bool { return running.Load() == 1 })
	var id int64
	testapp.OK(t, a.DB.NewRaw("SELECT id FROM consumer_messages WHERE consumer_type = 'stopped'").Scan(t.Context(), &id))
	stopped, err := a.Admin().Stop(t.Context(), a.DB, id)
	if err != nil || stopped != admin.StopCancelled {
		t.Errorf("Stop: got %q, %v, want %q", stopped, err, admin.StopCancelled)
	}
	r.MustStop()
}
