package outbox_test

import (
	"context"
	"errors"
	"fmt"
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
)

// gauge counts what runs, and how much ran at once at most.
type gauge struct{ now, most, runs atomic.Int64 }

func (g *gauge) enter() (leave func()) {
	n := g.now.Add(1)
	for most := g.most.Load(); n > most && !g.most.CompareAndSwap(most, n); most = g.most.Load() {
	}
	g.runs.Add(1)
	return func() { g.now.Add(-1) }
}

// work is a consumer's function that takes a while.
func (g *gauge) work(d time.Duration) func(context.Context, order) error {
	return func(ctx context.Context, _ order) error {
		defer g.enter()()
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (g *gauge) workRefund(d time.Duration) func(context.Context, refund) error {
	return func(ctx context.Context, _ refund) error { return g.work(d)(ctx, order{}) }
}

// TestSlotsAreGivenBackByAStop, also those that were being given back when it came.
func TestSlotsAreGivenBackByAStop(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		started, reached := make(chan *testapp.Running, 1), make(chan struct{})
		var once sync.Once
		hooked := db.WithQueryHook(testapp.QueryHook(func(ctx context.Context, query string) {
			if strings.Contains(query, "SET owner = '', leased_until") {
				once.Do(func() {
					(<-started).Stop(nil)
					<-ctx.Done()
					close(reached)
				})
			}
		}))
		var limited gauge
		a := testapp.New(t, hooked, bus.Consume("one", limited.work(time.Millisecond), bus.GlobalConcurrency(3)))
		a.ProduceMany(1)
		r := a.Start(testapp.Fast())
		started <- r
		<-reached
		r.MustStop()
		if n := a.Count("SELECT count(*) FROM message_slots WHERE owner <> '' AND n > 0"); limited.runs.Load() != 1 || n != 0 {
			t.Errorf("got %d runs, and %d slots that somebody has at the end, want 1 and none", limited.runs.Load(), n)
		}
	})
}

// TestALimitHoldsOverAllProcesses: three processors together run no more than it says, of
// consumers that share it, but as many as that.
// Promise: limits
func TestALimitHoldsOverAllProcesses(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var limited, free gauge
		consumers := []bus.Consumer{
			bus.Consume("one", limited.work(20*time.Millisecond), bus.SharedConcurrency("both", 3)),
			bus.Consume("two", limited.workRefund(20*time.Millisecond), bus.SharedConcurrency("both", 3)),
			bus.Consume("free", free.work(20*time.Millisecond)),
		}
		a := testapp.New(t, db, consumers...)
		a.ProduceMany(60)
		for range 60 {
			a.Produce(refund{ID: "1"})
		}
		var processors []*testapp.Running
		for range 3 {
			processors = append(processors, a.Start(testapp.Fast()))
		}
		testapp.Eventually(t, "all ran", a.Empty)
		for _, r := range processors {
			r.MustStop()
		}
		if limited.most.Load() != 3 || limited.runs.Load() != 120 || free.most.Load() < 6 {
			t.Errorf("got %d at once in %d runs, and %d of the one without a limit, want 3 in 120, and more", limited.most.Load(),
				limited.runs.Load(), free.most.Load())
		}
		if n := a.Count("SELECT count(*) FROM message_slots WHERE owner <> '' AND n > 0"); n != 0 {
			t.Errorf("got %d slots that somebody has at the end, want none", n)
		}
	})
}

// TestSlotsOfTheDeadAreFreeAgain with their lease, and others wait no longer.
func TestSlotsOfTheDeadAreFreeAgain(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var g gauge
		a := testapp.New(t, db, bus.Consume("c", g.work(0), bus.GlobalConcurrency(1)))
		a.Exec("INSERT INTO message_slots (name, n, owner, leased_until) SELECT 'c', 1, 'dead', " + testapp.In(db, 2*time.Second))
		a.Produce(order{ID: "1"})
		id := a.Pending()[0].ID
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "the limit is known as the reason", func() bool {
			e := testapp.Must[admin.Explanation](t)(a.Admin().Explain(a.Context(), db, id))
			return e.Reason == admin.Limited && strings.Contains(e.Text, "dead")
		})
		testapp.Eventually(t, "it ran", a.Empty)
		testapp.Eventually(t, "the slot is given back", func() bool {
			return a.Count("SELECT count(*) FROM message_slots WHERE owner <> '' AND n > 0") == 0
		})
		r.MustStop()
	})
}

// TestWhatRunsWithoutASlotIsCancelled, since somebody else may run in it.
func TestWhatRunsWithoutASlotIsCancelled(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var first atomic.Int64
		var lost atomic.Bool
		a := testapp.New(t, db, bus.Consume("c", func(ctx context.Context, _ order) error {
			if first.Add(1) > 1 {
				return nil
			}
			<-ctx.Done()
			lost.Store(errors.Is(context.Cause(ctx), bus.ErrLeaseLost))
			return context.Cause(ctx)
		}, bus.GlobalConcurrency(1), bus.Timeout(time.Minute)))
		a.Produce(order{ID: "1"})
		config := testapp.Fast()
		config.LeaseDuration = 2 * time.Second
		r := a.Start(config)
		testapp.Eventually(t, "it runs", func() bool { return first.Load() == 1 })
		a.Exec("UPDATE message_slots SET owner = 'other', leased_until = " + testapp.In(db, time.Second) + " WHERE n > 0")
		testapp.Eventually(t, "it is cancelled, and runs again", func() bool { return lost.Load() && a.Empty() })
		r.MustStop()
		if p := a.Poisoned(); len(p) > 0 || first.Load() != 2 {
			t.Errorf("got %d runs and %+v poisoned, want one more that counts nothing", first.Load(), p)
		}
	})
}

func TestASharedLimitHasOneSize(t *testing.T) {
	t.Parallel()
	registry := testapp.Must[*bus.Registry](t)(bus.NewRegistry(testapp.Consumed("b", bus.SharedConcurrency("s", 2)),
		testapp.Consumed("c", bus.SharedConcurrency("s", 3))))
	_, err := outbox.NewProcessor(testdb.SQLite(t), registry, outbox.ProcessorConfig{})
	if want := `SharedConcurrency "s" is 3, but 2 for c`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
}

// TestCrashedMessagesGetASlot although nothing else of their consumer waits, and without keeping
// one that another process needs.
func TestCrashedMessagesGetASlot(t *testing.T) {
	t.Parallel()
	for _, crashes := range []int{1, 2} {
		t.Run(fmt.Sprint(crashes), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				var limited, other gauge
				a := testapp.New(t, db, bus.Consume("c", limited.work(time.Millisecond), bus.GlobalConcurrency(1)),
					bus.Consume("other", other.workRefund(time.Millisecond), bus.GlobalConcurrency(1)))
				a.ProduceMany(2)
				a.Exec("UPDATE consumer_messages SET crashes = ?", crashes)
				config := testapp.Fast()
				config.LeaseDuration = 3 * time.Second // two processes hand the slot to each other for as long
				one, two := a.Start(config), a.Start(config)
				testapp.Eventually(t, "all ran", a.Empty)
				one.MustStop()
				two.MustStop()
				if limited.runs.Load() != 2 || limited.most.Load() != 1 {
					t.Errorf("got %d runs, %d at once, want 2, one after the other", limited.runs.Load(), limited.most.Load())
				}
			})
		})
	}
}

// TestASlotForWhatHasCrashedIsAskedForAtOnce, on virtual time.
func TestASlotForWhatHasCrashedIsAskedForAtOnce(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var at testapp.Moments
		a := newApp(bus.Consume("c", func(context.Context, order) error { at.Add(); return nil }, bus.GlobalConcurrency(1)))
		a.ProduceAt(ctx, order{ID: "1"})
		a.Exec("UPDATE consumer_messages SET crashes = 1")
		began := time.Now()
		r := a.StartWith(ctx, outbox.ProcessorConfig{})
		<-time.After(time.Minute)
		r.MustStop()
		if at.Len() != 1 {
			t.Fatalf("got %d runs in a minute, want one, in a slot", at.Len())
		}
		if took := at.At(0).Sub(began); took > 5*time.Second {
			t.Errorf("got it after %s, want it within seconds", took)
		}
	})
}

// TestSlotsAreNotIdleWhileMessagesWait for them in another process, on virtual time.
func TestSlotsAreNotIdleWhileMessagesWait(t *testing.T) {
	const takes = 400 * time.Millisecond
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var starts testapp.Moments
		a := newApp(bus.Consume("c", func(context.Context, order) error {
			starts.Add()
			<-time.After(takes)
			return nil
		}, bus.GlobalConcurrency(3)))
		for i := range 50 {
			a.ProduceAt(ctx, order{ID: fmt.Sprint(i)})
		}
		one, two := a.StartWith(ctx, outbox.ProcessorConfig{}), a.StartWith(ctx, outbox.ProcessorConfig{})
		<-time.After(time.Minute)
		one.MustStop()
		two.MustStop()
		if starts.Len() != 50 {
			t.Fatalf("got %d runs in a minute, want 50", starts.Len())
		}
		for i := 1; i < starts.Len(); i++ {
			if gap := starts.At(i).Sub(starts.At(i - 1)); gap > takes+500*time.Millisecond {
				t.Errorf("run %d began %s after the one before, want it once a slot is free", i+1, gap)
			}
		}
	})
}

// TestSlotsGoToProcessesWithDueMessages: a process whose consumer is stopped, or that has used its slots for long, gives them to
// another process that has none.
// Promise: due-starts
func TestSlotsGoToProcessesWithDueMessages(t *testing.T) {
	permanently := func(context.Context, *outbox.Circuit) error { return bus.Permanent(errAway) }
	for name, test := range map[string]struct {
		slots   int
		options []bus.ConsumerOption
		run     func(context.Context, *outbox.Circuit) error
	}{
		"a rate is spent": {1, []bus.ConsumerOption{bus.RateLimit(1, time.Hour, 1)},
			func(context.Context, *outbox.Circuit) error { return nil }},
		"a circuit is open": {1, nil, func(_ context.Context, g *outbox.Circuit) error { return g.Trip(errAway) }},
		"a breaker is open": {1, []bus.ConsumerOption{bus.CircuitBreaker(bus.CircuitBreakerConfig{MinRequests: 1, Cooldown: time.Hour})},
			func(context.Context, *outbox.Circuit) error { return errAway }},
		"a key is parked":    {1, []bus.ConsumerOption{bus.Ordered(bus.BlockKey)}, permanently},
		"an endless backlog": {2, nil, func(context.Context, *outbox.Circuit) error { <-time.After(500 * time.Millisecond); return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				var circuit outbox.Circuit
				var runs, others atomic.Int64
				options := append(test.options, bus.SharedConcurrency("both", test.slots))
				if strings.Contains(name, "circuit") {
					options = append(options, outbox.WithCircuit(&circuit))
				}
				first := bus.Consume("one", func(ctx context.Context, _ order) error { runs.Add(1); return test.run(ctx, &circuit) }, options...)
				second := bus.Consume("two", func(context.Context, refund) error { others.Add(1); return nil },
					bus.SharedConcurrency("both", test.slots))
				a := newApp(first, second)
				for range 500 {
					a.ProduceAt(ctx, order{ID: "1"}, outbox.OrderingKey("k"))
				}
				only := func(c bus.Consumer) *testapp.Running {
					part := *a
					part.Registry = testapp.Must[*bus.Registry](t)(bus.NewRegistry(c))
					return part.StartWith(ctx, outbox.ProcessorConfig{})
				}
				one := only(first)
				testapp.Sooner(t, "one ran", func() bool { return runs.Load() > 0 })
				<-time.After(5 * time.Second)
				two, began := only(second), time.Now()
				a.ProduceAt(ctx, refund{ID: "1"})
				testapp.Sooner(t, "two ran", func() bool { return others.Load() > 0 })
				if took := time.Since(began); took > 4*time.Second {
					t.Errorf("the other process had its slot after %s, want it within 4s", took)
				}
				one.Stop(nil)
				two.Stop(nil)
				one.Wait()
				two.Wait()
			})
		})
	}
}

// TestALimitAndASharedOneOfTheSameNameAreTwo: a consumer's own limit is stored under the consumer's name.
func TestALimitAndASharedOneOfTheSameNameAreTwo(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var own, shared gauge
		a := testapp.New(t, db, bus.Consume("x", own.work(300*time.Millisecond), bus.GlobalConcurrency(1)),
			bus.Consume("y", shared.workRefund(300*time.Millisecond), bus.SharedConcurrency("x", 2)))
		a.ProduceMany(2)
		for range 4 {
			a.Produce(refund{ID: "1"})
		}
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "all ran", a.Empty)
		r.MustStop()
		if own.most.Load() != 1 || shared.most.Load() != 2 {
			t.Errorf("at once: got %d and %d, want 1 and 2", own.most.Load(), shared.most.Load())
		}
	})
}

// TestALockedSlotCostsNoClaim, however long a transaction has it locked. Only the run in that slot ends.
// Promise: held-up
func TestALockedSlotCostsNoClaim(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, db *bun.DB) {
		var running, lost, slotless atomic.Int64
		release := make(chan struct{})
		block := func(ctx context.Context, ended *atomic.Int64) error {
			running.Add(1)
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				ended.Add(1)
				return context.Cause(ctx)
			}
		}
		unlimited := func(ctx context.Context, _ order) error { return block(ctx, &lost) }
		limited := func(ctx context.Context, _ refund) error { return block(ctx, &slotless) }
		a := testapp.New(t, db,
			bus.Consume("unlimited", unlimited, bus.Timeout(time.Minute)),
			bus.Consume("limited", limited, bus.Timeout(time.Minute), bus.GlobalConcurrency(2)))
		a.Produce(order{ID: "1"})
		a.Produce(refund{ID: "1"})
		config := testapp.Fast()
		config.LeaseDuration = 2 * time.Second
		r := a.Start(config)
		testapp.Eventually(t, "both run", func() bool { return running.Load() == 2 })
		locked := testapp.Must[bun.Tx](t)(db.BeginTx(t.Context(), nil))
		defer locked.Rollback() //nolint:errcheck // nothing is written
		testapp.OK(t, testapp.Second(locked.NewRaw("SELECT n FROM message_slots WHERE n > 0 FOR UPDATE").Exec(t.Context())))
		var until any
		testapp.OK(t, db.NewRaw("SELECT "+testapp.In(db, 3*config.LeaseDuration)).Scan(t.Context(), &until))
		testapp.Eventually(t, "claims are renewed for three leases", func() bool {
			return lost.Load() > 0 || a.Count("SELECT count(*) FROM message_claims WHERE leased_until > ?", until) > 0
		})
		if n := lost.Load(); n > 0 {
			t.Errorf("runs without a limit that were cancelled: got %d, want none", n)
		}
		if n := slotless.Load(); n != 1 {
			t.Errorf("runs in slots that could not be renewed, and that were cancelled: got %d, want 1", n)
		}
		if n := a.Count("SELECT sum(crashes) FROM consumer_messages"); n > 0 {
			t.Errorf("crashes: got %d, want none", n)
		}
		testapp.OK(t, locked.Rollback())
		close(release)
		testapp.Eventually(t, "both ended", a.Empty)
		r.MustStop()
	}
	t.Run("mariadb", func(t *testing.T) { t.Parallel(); test(t, testdb.MariaDB(t)) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); test(t, testdb.Postgres(t)) })
}

// TestAStopWaitsOnceForTheSlotsOfAllLimits where the database does not answer: they end with their leases.
func TestAStopWaitsOnceForTheSlotsOfAllLimits(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	db := testdb.SQLite(t).WithQueryHook(testapp.QueryHook(func(ctx context.Context, query string) {
		if strings.Contains(query, "SET owner = '', leased_until") {
			asked.Add(1)
			<-ctx.Done()
		}
	}))
	var running atomic.Int64
	release := make(chan struct{})
	work := func(context.Context, order) error { running.Add(1); <-release; return nil }
	var consumers []bus.Consumer
	for _, name := range []string{"a", "b", "c", "d"} {
		consumers = append(consumers, bus.Consume(name, work, bus.GlobalConcurrency(1)))
	}
	a := testapp.New(t, db, consumers...)
	a.ProduceMany(1)
	r := a.Start(testapp.Fast())
	testapp.Eventually(t, "all run", func() bool { return running.Load() == 4 })
	r.Stop(nil)
	close(release)
	began := time.Now()
	r.MustStop()
	if took := time.Since(began); took > 4*time.Second || asked.Load() == 0 {
		t.Errorf("a stop while slots cannot be returned: got it over after %s, want about a second", took)
	}
}
