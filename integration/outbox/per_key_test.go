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
	"github.com/uptrace/bun/dialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// crowd is a consumer of steps that notes how many of a customer run at once.
type crowd struct {
	mu      sync.Mutex
	took    time.Duration
	running map[string]int
	most    map[string]int
	runs    map[string]int
	order   []string
}

func newCrowd(took time.Duration) *crowd {
	return &crowd{took: took, running: make(map[string]int), most: make(map[string]int), runs: make(map[string]int)}
}

func (t *crowd) consume(_ context.Context, s step) error {
	t.mu.Lock()
	t.running[s.Customer]++
	t.runs[s.Customer]++
	t.most[s.Customer] = max(t.most[s.Customer], t.running[s.Customer])
	t.order = append(t.order, s.Customer)
	again := s.N%10 == 0 && t.runs[s.Customer]%2 == 0
	t.mu.Unlock()
	<-time.After(t.took)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running[s.Customer]--
	if again && strings.HasPrefix(s.Customer, "retried") {
		return errors.New("not yet")
	}
	return nil
}

// consumeBatch is consume for many steps at once.
func (t *crowd) consumeBatch(ctx context.Context, steps []step) error {
	failed := make(chan error, len(steps))
	each := bus.BatchError{}
	for _, s := range steps {
		go func() { failed <- t.consume(ctx, s) }()
	}
	for i := range steps {
		each[i] = <-failed // which of them it was makes no difference
	}
	return each
}

func (t *crowd) ran(customer string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.runs[customer]
}

// stepsOf are steps 1 to n of each customer.
func stepsOf(n int, customers ...string) (items []outbox.Item) {
	for i := 1; i <= n; i++ {
		for _, customer := range customers {
			items = append(items, outbox.Item{Payload: step{customer, i}})
		}
	}
	return items
}

// TestPerKeyBoundsTheRunsOfAKey, in all processes together, and as many do.
// Promise: limits
func TestPerKeyBoundsTheRunsOfAKey(t *testing.T) {
	t.Parallel()
	single := func(ran *crowd, options ...bus.ConsumerOption) bus.Consumer {
		return bus.Consume("c", ran.consume, options...)
	}
	for name, consumer := range map[string]func(*crowd) bus.Consumer{
		"single": func(ran *crowd) bus.Consumer { return single(ran, bus.KeyConcurrency(2), bus.MaxAttempts(20)) },
		"in a limit": func(ran *crowd) bus.Consumer {
			return single(ran, bus.KeyConcurrency(2), bus.MaxAttempts(20), bus.GlobalConcurrency(5))
		},
		"in batches": func(ran *crowd) bus.Consumer {
			return bus.ConsumeBatch("c", ran.consumeBatch, bus.KeyConcurrency(2), bus.MaxAttempts(20))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
				ran := newCrowd(3 * time.Millisecond)
				a := testapp.New(t, db, consumer(ran))
				testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), a.DB, stepsOf(25, "a", "retried", "b")...))
				one, two := a.Start(testapp.Fast()), a.Start(testapp.Fast())
				testapp.Eventually(t, "all ran", a.Empty)
				one.MustStop()
				two.MustStop()
				most := 0 // a limit may keep those of one key from meeting
				for _, customer := range []string{"a", "retried", "b"} {
					most = max(most, ran.most[customer])
					if ran.most[customer] > 2 || ran.runs[customer] < 25 {
						t.Errorf("customer %s: got %d at once, and %d runs; want 2, and 25 or more", customer, ran.most[customer], ran.runs[customer])
					}
				}
				if most != 2 {
					t.Errorf("got %d of a key at once, want 2", most)
				}
			})
		})
	}
}

// TestFewMessagesAreSharedToo, where a rate lets one of them start at a time.
func TestFewMessagesAreSharedToo(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		ran := newCrowd(0)
		a := testapp.New(t, db, bus.Consume("c", ran.consume, bus.Fair(), bus.RateLimit(50, time.Second, 1)))
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, stepsOf(60, "hot")...))
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, stepsOf(3, "b", "c", "d", "e")...))
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "all ran", a.Empty)
		r.MustStop()
		last := len(ran.order)
		for last > 0 && ran.order[last-1] == "hot" {
			last--
		}
		if last > 24 { // three rounds of five
			t.Errorf("got the last of the others as number %d, behind %d of the hot key: want each key to have its turn", last, last-12)
		}
	})
}

// TestOneKeyDoesNotStarveOthers that come behind its many messages.
// Promise: shares
func TestOneKeyDoesNotStarveOthers(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		ran := newCrowd(time.Millisecond)
		a := testapp.New(t, db, bus.Consume("c", ran.consume, bus.Fair(), bus.Concurrency(4)))
		const hot, others, each = 2000, 3, 10
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, stepsOf(hot, "hot")...))
		var customers []string
		for i := range others {
			customers = append(customers, fmt.Sprint("small ", i))
		}
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, stepsOf(each, customers...)...))
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "all ran", a.Empty)
		r.MustStop()
		before, left := 0, others*each
		for _, customer := range ran.order {
			if customer == "hot" {
				before++
			} else if left--; left == 0 {
				break
			}
		}
		if len(ran.order) != hot+others*each || before > hot/4 {
			t.Errorf("got %d runs, of which %d of the hot key before the last of the others; want %d and few", len(ran.order), before,
				hot+others*each)
		}
	})
}

// TestFewWorkersServeAllKeys: a key with many messages, or some, ahead of another's first, and
// few that run at once.
func TestFewWorkersServeAllKeys(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 12 {
		many = append(many, fmt.Sprint("hot ", i))
	}
	for name, test := range map[string]struct {
		option bus.ConsumerOption
		hot    []string
	}{"a share each": {bus.Fair(), []string{"hot"}}, "a share each of many": {bus.Fair(),
		many}, "rates": {bus.KeyRateLimit(1000, time.Second, 1000), []string{"hot"}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
				ran := newCrowd(20 * time.Millisecond)
				a := testapp.New(t, db, bus.Consume("c", ran.consume, test.option, bus.Concurrency(2)))
				testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, stepsOf(1500/len(test.hot), test.hot...)...))
				a.Produce(step{"small", 1})
				r := a.Start(testapp.Fast())
				testapp.Eventually(t, "the other ran", func() bool { return ran.ran("small") == 1 })
				ran.mu.Lock()
				before := len(ran.order)
				ran.mu.Unlock()
				if before > 300 {
					t.Errorf("got %d runs before that of the other key was seen, want few", before)
				}
				r.MustStop()
			})
		})
	}
}

// TestCrashedMessagesKeepToTheBound of their key, when all were produced at once.
func TestCrashedMessagesKeepToTheBound(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		ran := newCrowd(100 * time.Millisecond)
		a := testapp.New(t, db, bus.Consume("c", ran.consume, bus.KeyConcurrency(1)))
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, stepsOf(4, "k")...))
		a.Exec("UPDATE consumer_messages SET crashes = 1")
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "all ran", a.Empty)
		r.MustStop()
		if ran.most["k"] != 1 {
			t.Errorf("at once: got %d, want 1", ran.most["k"])
		}
	})
}

// TestAStepEndsWhereARateIsSpent of the key.
func TestAStepEndsWhereARateIsSpent(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		ran := newCrowd(0)
		a := testapp.New(t, db, bus.Consume("c", ran.consume, bus.KeyRateLimit(1, time.Hour, 1)))
		a.Produce(step{"k", 1})
		a.Produce(step{"k", 2})
		p := testapp.Must[*outbox.Processor](t)(outbox.NewProcessor(db, a.Registry, testapp.Fast()))
		for i, want := range []bool{true, false, false} {
			if got, err := p.ProcessNext(t.Context()); err != nil || got != want {
				t.Errorf("step %d: got %t, %v; want %t", i+1, got, err, want)
			}
		}
	})
}

// TestEachKeyKeepsToItsRate, and a key that is over it is in nobody's way.
func TestEachKeyKeepsToItsRate(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		ran := newCrowd(0)
		a := testapp.New(t, db, bus.Consume("c", ran.consume, bus.KeyRateLimit(20, time.Second, 2)))
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, stepsOf(500, "a", "b")...))
		began := time.Now()
		config := testapp.Fast()
		config.PollInterval = time.Hour
		one, two := a.Start(config), a.Start(config)
		testapp.Eventually(t, "forty have run", func() bool { return ran.ran("a") >= 40 && ran.ran("b") >= 40 })
		n := max(ran.ran("a"), ran.ran("b"))
		if most := 3 + int(20*time.Since(began).Seconds()); n > most {
			t.Errorf("got %d runs of a key, want at most %d", n, most)
		}
		a.Produce(step{"new", 1})
		testapp.Eventually(t, "it ran", func() bool { return ran.ran("new") == 1 })
		if ran.ran("a") == 500 {
			t.Error("a key that is not over its rate: got it after the others, want it before them")
		}
		last := int64(a.Count("SELECT MAX(id) FROM consumer_messages WHERE order_key = 'customer:a'"))
		testapp.Eventually(t, "Explain says so", func() bool {
			e, err := a.Admin().Explain(t.Context(), db, last)
			return err == nil && e.Reason == admin.RateLimited && strings.Contains(e.Text, "The key starts at most 20 in 1s")
		})
		one.MustStop()
		two.MustStop()
	})
}

// TestAMessageWithAKeyThatWasDueLongAgoRuns: its due time is its place among those of its consumer.
func TestAMessageWithAKeyThatWasDueLongAgoRuns(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, bus.Consume("c", func(context.Context, step) error { return nil }, bus.KeyConcurrency(1)))
		a.Produce(step{"a", 1}, outbox.AvailableAt(time.Unix(0, 0)))
		a.Produce(step{"b", 1}, outbox.AvailableAt(time.Date(1, 2, 3, 0, 0, 0, 0, time.UTC)))
		a.Produce(step{"c", 1}, outbox.Delay(time.Hour))
		id := int64(a.Count("SELECT MAX(id) FROM consumer_messages"))
		if _, err := a.Admin().Reschedule(t.Context(), db, time.Unix(0, 0), id); err != nil {
			t.Fatal(err)
		}
		a.Start(testapp.Fast())
		testapp.Poll(t, "all ran", 30*time.Second, 10*time.Millisecond, a.Empty)
	})
}

// TestWhatHasAKeyMayWait where its consumer does not run in order, and is run when it is due.
func TestWhatHasAKeyMayWait(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		ran, over := newCrowd(0), make(chan struct{})
		a := testapp.New(t, db, bus.Consume("c", ran.consume, bus.KeyConcurrency(1)),
			bus.Consume("d", func(context.Context, order) error { <-over; return nil }, bus.KeyConcurrency(1)))
		began := time.Now()
		a.Produce(step{"a", 1}, outbox.Delay(1500*time.Millisecond))
		a.Produce(step{"a", 2})
		config := testapp.Fast()
		config.PollInterval = time.Hour
		r := a.Start(config)
		testapp.Eventually(t, "what is due ran", func() bool { return ran.ran("a") > 0 })
		testapp.Eventually(t, "all ran", a.Empty)
		if took := time.Since(began); took < 1400*time.Millisecond {
			t.Errorf("what waits: got it after %s, want it in 1.5s", took)
		}
		for range 2 {
			a.Produce(order{}, outbox.OrderingKey("k"))
		}
		testapp.Eventually(t, "one runs", func() bool { return a.Count("SELECT count(*) FROM message_claims") == 1 })
		e, err := a.Admin().Explain(t.Context(), db, int64(a.Count("SELECT MAX(id) FROM consumer_messages")))
		if err != nil || e.Reason != admin.KeyLimited || !strings.Contains(e.Text, `1 messages of key "k"`) {
			t.Errorf("Explain: got %q (%s), %v; want %q", e.Reason, e.Text, err, admin.KeyLimited)
		}
		close(over)
		testapp.Eventually(t, "all ran", a.Empty)
		r.MustStop()
		if _, err := a.Producer.Produce(t.Context(), db, order{}); !errors.Is(err, bus.ErrNoKey) {
			t.Errorf("Produce without a key: got %v, want %v", err, bus.ErrNoKey)
		}
	})
}

// TestMessagesOfOneInstantAreFound, whatever else was due then, by processes that do not poll.
func TestMessagesOfOneInstantAreFound(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		ran := newCrowd(0)
		a := testapp.New(t, db, bus.Consume("c", ran.consume, bus.KeyConcurrency(1)))
		config := testapp.Fast()
		config.PollInterval = time.Hour
		r := a.Start(config)
		for n := 1; n <= 90; n++ { // several in a millisecond, which is what SQLite's clock has
			a.Produce(step{"a", n})
			if n%3 > 0 {
				continue
			}
			testapp.Eventually(t, "they ran", func() bool { return ran.ran("a") == n })
		}
		at := testapp.In(db, -time.Minute)
		r.MustStop()
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, append(stepsOf(1000, "hot"), stepsOf(20, "b", "c")...)...))
		a.Exec("UPDATE consumer_messages SET available_after = " + at)
		if _, isInteger := any(db.Dialect()).(*sqlitedialect.Dialect); isInteger {
			a.Exec("UPDATE consumer_messages SET rank = available_after")
		} else {
			a.Exec("UPDATE consumer_messages SET rank = (EXTRACT(EPOCH FROM available_after) * 1000000)::bigint")
		}
		r = a.Start(testapp.Fast())
		testapp.Eventually(t, "the others ran", func() bool { return ran.ran("b")+ran.ran("c") == 40 })
		if n := ran.ran("hot"); n > 500 {
			t.Errorf("of a key with many of the same instant: got %d runs before the others, want few", n)
		}
		r.MustStop()
	})
}

func TestMariaDBHasNoLimitOfAKey(t *testing.T) {
	t.Parallel()
	maria := testdb.MariaDB(t)
	registry := testapp.Must[*bus.Registry](t)(bus.NewRegistry(testapp.Consumed("c", bus.KeyConcurrency(1))))
	if _, err := outbox.NewProcessor(maria, registry, outbox.ProcessorConfig{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("NewProcessor on MariaDB: got %v, want %v", err, errors.ErrUnsupported)
	}
}

// TestOthersBesideKeysInAnyOrder: what a consumer with keys makes of a message does not stick to
// those that come after it.
func TestOthersBesideKeysInAnyOrder(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		done := func(context.Context, step) error { return nil }
		a := testapp.New(t, db, bus.Consume("a", done, bus.KeyConcurrency(2)), bus.Consume("b", done),
			bus.Consume("c", done, bus.Ordered(bus.BlockKey)))
		for n := range 3 {
			a.Produce(step{N: n}, outbox.InsertID("r", outbox.Replace()))
			a.Produce(step{N: n}, outbox.InsertID("d", outbox.Debounce(time.Millisecond, time.Second)))
		}
		if rows := a.Pending(); len(rows) != 6 {
			t.Errorf("got %d rows, want the newest of both for each consumer", len(rows))
		}
		a.Start(testapp.Fast())
		testapp.Eventually(t, "all is done", a.Empty)
	})
}

// TestABatchDoesNotWaitForKeysAtTheirBound: no more of them come before it has run.
func TestABatchDoesNotWaitForKeysAtTheirBound(t *testing.T) {
	const patience = time.Second
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		ran := newCrowd(0)
		a := newApp(bus.ConsumeBatch("c", ran.consumeBatch, bus.KeyConcurrency(2), bus.BatchWait(patience)))
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(ctx, a.DB, stepsOf(40, "a")...))
		began := time.Now()
		r := a.StartWith(ctx, testapp.Fast())
		testapp.Sooner(t, "all but the last ran", func() bool { return ran.ran("a") >= 38 })
		if took := time.Since(began); took > patience {
			t.Errorf("took %s for 38 of 40, two at a time, want no batch but the last to wait", took)
		}
		r.MustStop()
	})
}

// TestSlowLooksReachEveryConsumerWithKeys: polls that run out of time do not all begin with the same consumers.
func TestSlowLooksReachEveryConsumerWithKeys(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var ran atomic.Int64
		var consumers []bus.Consumer
		for i := range 300 {
			consumers = append(consumers, bus.Consume(fmt.Sprint("keyed", i), func(context.Context, step) error { ran.Add(1); return nil },
				bus.KeyConcurrency(2)))
		}
		a := newApp(consumers...)
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(ctx, a.DB, stepsOf(1, "k")...))
		b := *a
		b.DB = a.DB.WithQueryHook(testapp.QueryHook(func(ctx context.Context, query string) {
			if strings.Contains(query, "AS look") {
				select {
				case <-time.After(2 * time.Second): // two parts of six fit into the time of a poll
				case <-ctx.Done():
				}
			}
		}))
		r := b.StartWith(ctx, testapp.Fast())
		testapp.Poll(t, "the message ran for each consumer", 10*time.Minute, time.Second, func() bool { return ran.Load() == 300 })
		r.MustStop()
	})
}

// TestManyKeyedConsumersKeepPollsAlive: what another process has produced is found by polls, however many consumers go by keys.
func TestManyKeyedConsumersKeepPollsAlive(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var plain, keyed atomic.Int64
		consumers := []bus.Consumer{testapp.Counting("plain", &plain)}
		const n = 1000 // several statements look for them
		byKey := bus.KeyConcurrency(2)
		if db.Dialect().Name() == dialect.MySQL {
			byKey = bus.Ordered(bus.BlockKey)
		}
		for i := range n {
			consumers = append(consumers, bus.Consume(fmt.Sprint("keyed", i), func(context.Context, step) error { keyed.Add(1); return nil }, byKey))
		}
		a := testapp.New(t, db, consumers...)
		config := testapp.Fast()
		config.PollInterval = time.Second
		r := a.Start(config)
		testapp.Eventually(t, "it is ready", func() bool { return r.Health().Ready })
		elsewhere := testapp.New(t, db, consumers[0], consumers[n])
		elsewhere.Produce(order{ID: "1"})
		elsewhere.Produce(step{Customer: "k"})
		testapp.Eventually(t, "both ran", func() bool { return plain.Load() == 1 && keyed.Load() == 1 })
		if health := r.Health(); !health.Ready {
			t.Errorf("health: got %+v, want ready", health)
		}
		r.MustStop()
	})
}
