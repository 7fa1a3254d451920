package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// alone has a configuration run one batch at a time, so that batches form.
func alone() outbox.ProcessorConfig {
	config := testapp.Fast()
	config.Concurrency, config.TxConcurrency = 1, 1
	return config
}

// calls notes what a consumer of batches was given.
type calls struct {
	mu  sync.Mutex
	all [][]string
}

func (c *calls) add(orders []order) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, ids(orders))
}

// addSteps notes a call with steps, as "a1", and returns which call it is, counted from 1.
func (c *calls) addSteps(steps []step) (nth int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var call []string
	for _, s := range steps {
		call = append(call, fmt.Sprint(s.Customer, s.N))
	}
	c.all = append(c.all, call)
	return len(c.all)
}

func ids(orders []order) (list []string) {
	for _, o := range orders {
		list = append(list, o.ID)
	}
	return list
}

// runs counts how often each order was given to the consumer.
func (c *calls) runs() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := make(map[string]int)
	for _, call := range c.all {
		for _, id := range call {
			n[id]++
		}
	}
	return n
}

func (c *calls) largest() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.all {
		n = max(n, len(call))
	}
	return n
}

func TestBatches(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var seen calls
		a := testapp.New(t, db, bus.ConsumeBatch("c", func(ctx context.Context, orders []order) error {
			seen.add(orders)
			batch := bus.BatchFromContext(ctx)
			first, ok := bus.MessageFromContext(ctx)
			if len(batch) != len(orders) || !ok || first != batch[0] {
				return fmt.Errorf("got %d messages with %d orders", len(batch), len(orders))
			}
			failed := bus.BatchError{}
			for i, o := range orders {
				switch m := batch[i]; {
				case o.ID == "1" && m.Attempt == 1:
					failed[i] = errors.New("not yet")
				case o.ID == "2":
					failed[i] = bus.Permanent(errors.New("never"))
				case o.ID == "3":
					failed[i] = bus.Discard(errors.New("not wanted"))
				}
			}
			return failed
		}, bus.BatchSize(7)))
		a.ProduceMany(20)
		r := a.Start(alone())
		testapp.Eventually(t, "nothing waits", a.Empty)
		r.MustStop()
		runs := seen.runs()
		if n := seen.largest(); len(runs) != 20 || n < 2 || n > 7 { // a busy machine may begin one without some
			t.Errorf("got %d orders in batches of up to %d, want 20 in 7", len(runs), n)
		}
		for id, n := range runs {
			if want := 1 + map[string]int{"1": 1}[id]; n != want {
				t.Errorf("order %s: got %d runs, want %d", id, n, want)
			}
		}
		if p := a.Poisoned(); len(p) != 1 || p[0].Attempts != 1 {
			t.Errorf("got %+v poisoned, want the one that failed for good", p)
		}
	})
}

// TestABatchIsFilled although its consumer may run but one, and more than half of it waits.
func TestABatchIsFilled(t *testing.T) {
	t.Parallel()
	for range 10 { // a busy machine may not get there within BatchWait
		running, claimed := make(chan *testapp.Running, 1), make(chan int64, 1)
		var once sync.Once
		a := testapp.New(t, testdb.SQLite(t), bus.ConsumeBatch("c", func(context.Context, []order) error {
			once.Do(func() { claimed <- (<-running).Stats().Claimed })
			return nil
		}, bus.BatchSize(100), bus.BatchWait(time.Second), bus.Concurrency(1)))
		r := a.Start(testapp.Fast())
		running <- r
		a.ProduceMany(60)
		testapp.Eventually(t, "they are claimed", func() bool { return r.Stats().Claimed >= 60 })
		a.ProduceMany(200)
		filled := <-claimed >= 100
		r.MustStop()
		if filled {
			return
		}
	}
	t.Error("first calls: got less than 100 messages claimed before each of 10, want enough to fill the batch")
}

// TestWhatCannotJoinABatchFindsAWorker of its own, at once.
func TestWhatCannotJoinABatchFindsAWorker(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	started := make(chan string, 2)
	a := testapp.New(t, testdb.SQLite(t), bus.ConsumeBatch("c", func(_ context.Context, orders []order) error {
		started <- orders[0].ID
		<-release
		return nil
	}, bus.BatchWait(50*time.Millisecond)))
	a.Produce(order{ID: "fresh"})
	a.Produce(order{ID: "retried"})
	a.Exec("UPDATE consumer_messages SET attempts = 1 WHERE payload LIKE '%retried%'")
	r := a.Start(testapp.Fast())
	<-started
	<-started // although the first has not ended
	if claimed := r.Stats().Claimed; claimed != 2 {
		t.Errorf("got %d messages claimed, want 2: none was given back", claimed)
	}
	close(release)
	r.MustStop()
}

// TestABatchIsJudgedOnce when it fails as a whole: each time costs a round trip.
func TestABatchIsJudgedOnce(t *testing.T) {
	t.Parallel()
	var failed atomic.Bool
	var asked atomic.Int64
	db := testdb.SQLite(t).WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) {
		if failed.Load() && query == "SELECT 1" { // is the transaction usable?
			asked.Add(1)
		}
	}))
	a, _ := batchedInTx(t, db, func(context.Context, bun.Tx, []order) error {
		if failed.Swap(true) {
			return nil
		}
		return fmt.Errorf("another system: %w", &net.OpError{Op: "dial", Err: errors.New("refused")})
	}, bus.MaxAttempts(9), bus.AttemptDelay(time.Hour), bus.BatchSize(500))
	a.ProduceMany(500)
	r := a.Start(alone())
	testapp.Eventually(t, "all have failed", func() bool { return a.Count("SELECT count(*) FROM consumer_messages WHERE attempts = 0") == 0 })
	r.MustStop()
	if n := asked.Load(); n != 1 {
		t.Errorf("got the transaction asked %d times, want once", n)
	}
}

// TestOneErrorIsEverybodys and who has failed comes alone.
func TestOneErrorIsEverybodys(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var seen calls
		a := testapp.New(t, db, bus.ConsumeBatch("c", func(_ context.Context, orders []order) error {
			seen.add(orders)
			if slices.Contains(ids(orders), "1") {
				return errors.New("one of them cannot be read")
			}
			return nil
		}, bus.MaxAttempts(2), bus.AttemptDelay(time.Millisecond)))
		a.ProduceMany(10)
		r := a.Start(alone())
		testapp.Eventually(t, "nothing waits", a.Empty)
		r.MustStop()
		failed, together := make(map[string]bool), false
		for _, call := range seen.all {
			for _, id := range call {
				together = together || failed[id] && len(call) > 1
				failed[id] = failed[id] || slices.Contains(call, "1")
			}
		}
		if p := a.Poisoned(); len(p) != 1 || seen.largest() < 2 || together {
			t.Errorf("got calls %v and %d poisoned, want all at once, then one by one, and one poisoned", seen.all, len(p))
		}
	})
}

func TestBatchesPanicAndTimeOutTogether(t *testing.T) {
	t.Parallel()
	var first atomic.Int64
	a := testapp.New(t, testdb.SQLite(t),
		bus.ConsumeBatch("panics", func(_ context.Context, orders []order) error {
			if len(orders) > 1 {
				panic("all of them")
			}
			return nil
		}, bus.AttemptDelay(time.Millisecond)),
		bus.ConsumeBatch("hangs", func(ctx context.Context, orders []order) error {
			if len(orders) > 1 && first.Add(1) == 1 {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		}, bus.Timeout(100*time.Millisecond), bus.AttemptDelay(time.Millisecond)),
		bus.ConsumeBatch("ignores", func(_ context.Context, orders []order) error {
			if len(orders) > 1 {
				<-t.Context().Done()
			}
			return nil
		}, bus.Timeout(100*time.Millisecond), bus.AttemptDelay(time.Millisecond)))
	a.ProduceMany(5)
	r := a.Start(testapp.Fast())
	testapp.Eventually(t, "nothing waits", a.Empty)
	r.Stop(nil)
	if err := r.Wait(); err == nil || r.Stats().Abandoned != 1 {
		t.Errorf("got %v and %d abandoned, want the call that hangs", err, r.Stats().Abandoned)
	}
	if p := a.Poisoned(); len(p) != 0 || first.Load() == 0 {
		t.Errorf("got %+v poisoned, want none, since each comes alone the second time", p)
	}
}

// TestBatchesWaitForMore: a message alone waits as long as BatchWait says, and a full batch
// does not.
func TestBatchesWaitForMore(t *testing.T) {
	const patience = time.Second
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var seen calls
		a := newApp(bus.ConsumeBatch("c", func(_ context.Context, orders []order) error {
			seen.add(orders)
			return nil
		}, bus.BatchSize(10), bus.BatchWait(patience)))
		r := a.StartWith(ctx, outbox.ProcessorConfig{})
		ran := func() int { seen.mu.Lock(); defer seen.mu.Unlock(); return len(seen.all) }
		wait := func(calls int) time.Duration {
			began := time.Now()
			testapp.Poll(t, "it ran", time.Hour, time.Millisecond, func() bool { return ran() == calls })
			return time.Since(began)
		}
		for range 10 {
			a.ProduceAt(ctx, order{ID: "1"})
		}
		if took := wait(1); took >= patience {
			t.Errorf("a full batch: got it called after %s, want at once", took)
		}
		a.ProduceAt(ctx, order{ID: "1"})
		if took := wait(2); took < patience || len(seen.all[0]) != 10 {
			t.Errorf("got calls %v, the last after %s, want one of 10 and one of 1 after %s", seen.all, took, patience)
		}
		testapp.Sooner(t, "nothing waits", a.Empty)
		r.MustStop()
		if claimed := r.Stats().Claimed; claimed != 11 {
			t.Errorf("got %d messages claimed, want 11: none is given back while it waits", claimed)
		}
	})
}

func TestRawConsumersTakeMessagesAsTheyAre(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var mu sync.Mutex
		got := make(map[string]string)
		a := testapp.New(t, db, testapp.Consumed("other"), bus.ConsumeRaw("raw", func(_ context.Context, batch []*bus.Message) error {
			mu.Lock()
			defer mu.Unlock()
			for _, m := range batch {
				got[m.PayloadType] = string(m.Payload)
			}
			return nil
		}, []string{order{}.PayloadType(), refund{}.PayloadType()}))
		a.Produce(order{ID: "1"})
		a.Produce(refund{ID: "2"})
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "nothing waits", a.Empty)
		r.MustStop()
		if len(got) != 2 || got["order.placed"] == "" || got["order.refunded"] == "" {
			t.Errorf("got %v, want both payloads", got)
		}
	})
}

// batchedInTx is an application whose consumer adds an effect for each message of a batch,
// and then returns what what returns.
func batchedInTx(t *testing.T, db *bun.DB, what func(ctx context.Context, tx bun.Tx, orders []order) error,
	options ...bus.ConsumerOption) (*app, *calls) {
	t.Helper()
	seen := new(calls)
	a := withEffects(testapp.New(t, db, outbox.ConsumeBatchTx("stock", func(ctx context.Context, tx bun.Tx, orders []order) error {
		seen.add(orders)
		for i, m := range bus.BatchFromContext(ctx) {
			if err := addEffect(bus.ContextWithMessage(ctx, m), tx, orders[i]); err != nil {
				return err
			}
		}
		return what(ctx, tx, orders)
	}, append([]bus.ConsumerOption{bus.Timeout(3 * time.Second)}, options...)...)))
	return a, seen
}

func TestTransactionalBatches(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, seen := batchedInTx(t, db, func(ctx context.Context, _ bun.Tx, orders []order) error {
			failed := bus.BatchError{}
			for i, o := range orders {
				if m := bus.BatchFromContext(ctx)[i]; o.ID == "1" && m.Attempt == 1 {
					failed[i] = errors.New("not yet")
				} else if o.ID == "2" {
					failed[i] = bus.Permanent(errors.New("never"))
				}
			}
			return failed
		}, bus.AttemptDelay(time.Millisecond))
		a.ProduceMany(20)
		r := a.Start(alone())
		testapp.Eventually(t, "nothing waits", a.Empty)
		r.MustStop()
		effects := effectsOf(a)
		if len(effects) != 19 || seen.largest() < 2 || len(a.Poisoned()) != 1 {
			t.Errorf("got %d with effects in batches of up to %d and %d poisoned, want 19, 20 and 1", len(effects), seen.largest(),
				len(a.Poisoned()))
		}
		for id, attempts := range effects {
			if want := 1 + map[string]int{"1": 1}[id]; len(attempts) != 1 || attempts[0] != want {
				t.Errorf("order %s: got effects in attempts %v, want one in attempt %d", id, attempts, want)
			}
		}
	})
}

// TestATransactionalBatchThatCannotCommit is run one by one, to find out who is to blame.
func TestATransactionalBatchThatCannotCommit(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	a, seen := batchedInTx(t, db, func(ctx context.Context, tx bun.Tx, orders []order) error {
		for _, o := range orders {
			if o.ID == "3" { // two of them, which is found out at the commit
				if _, err := tx.NewRaw("INSERT INTO later VALUES (1), (1)").Exec(ctx); err != nil {
					return err
				}
			}
		}
		return nil
	}, bus.MaxAttempts(1))
	a.Exec("CREATE TABLE later (id int, UNIQUE (id) DEFERRABLE INITIALLY DEFERRED)")
	a.ProduceMany(10)
	r := a.Start(alone())
	testapp.Eventually(t, "nothing waits", a.Empty)
	r.MustStop()
	if effects := effectsOf(a); len(effects) != 9 || len(a.Poisoned()) != 1 || len(effects["3"]) != 0 {
		t.Errorf("got effects %v and %d poisoned, want those of all but one; calls: %v", effects, len(a.Poisoned()), seen.all)
	}
}

// TestABatchKnowsThatItLostAConflict when it is tried again, as an event log wants to.
func TestABatchKnowsThatItLostAConflict(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 2} {
		t.Run(fmt.Sprint("batches of ", size), func(t *testing.T) {
			t.Parallel()
			var tries atomic.Int64
			consume := func(ctx context.Context, tx bun.Tx, _ []order) error {
				n := tries.Add(1)
				if n == 1 {
					_, err := tx.ExecContext(ctx, "DO $$ BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END $$")
					return err
				}
				if n == 2 && !txn.Repeated(ctx) {
					t.Error("the second try does not know that the first has lost a conflict")
				}
				return nil
			}
			a := testapp.New(t, testdb.Postgres(t), outbox.ConsumeBatchTx("c", consume, bus.BatchSize(size)))
			a.ProduceMany(2)
			r := a.Start(alone())
			testapp.Eventually(t, "all ran", a.Empty)
			r.MustStop()
			if tries.Load() < 2 {
				t.Errorf("got %d tries, want another for the conflict", tries.Load())
			}
		})
	}
}
