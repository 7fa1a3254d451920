package outbox_test

import (
	"context"
	"fmt"
	"strings"
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

// TestARateHoldsOverAllProcesses: in no window do more start than the rate and its burst
// allow, and a backlog is worked off at that rate.
// Promise: limits
func TestARateHoldsOverAllProcesses(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		const n, burst, messages = 200, 20, 420 // a second
		var at testapp.Moments
		a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error { at.Add(); return nil },
			bus.RateLimit(n, time.Second, burst)))
		a.ProduceMany(messages)
		began := time.Now()
		var processors []*testapp.Running
		for range 3 {
			processors = append(processors, a.Start(testapp.Fast()))
		}
		testapp.Eventually(t, "all ran", a.Empty)
		for _, r := range processors {
			r.MustStop()
		}
		if at.Len() != messages {
			t.Fatalf("got %d runs, want %d", at.Len(), messages)
		}
		took := at.At(messages - 1).Sub(began)
		if least := (messages - burst - 1) * time.Second / n; took < least-50*time.Millisecond {
			t.Errorf("got all of them within %s, want %s or more", took, least)
		}
	})
}

// TestRatesAreExact on a clock that nothing disturbs, at a low rate and across a restart.
func TestRatesAreExact(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var at testapp.Moments
		a := newApp(bus.Consume("c", func(context.Context, order) error { at.Add(); return nil }, bus.RateLimit(2, time.Minute, 1)))
		for range 6 {
			a.ProduceAt(ctx, order{ID: "1"})
		}
		r := a.StartWith(ctx, outbox.ProcessorConfig{})
		testapp.Sooner(t, "three ran", func() bool { return at.Len() == 3 })
		r.MustStop()
		r = a.StartWith(ctx, outbox.ProcessorConfig{})
		testapp.Sooner(t, "six ran", func() bool { return at.Len() == 6 })
		r.MustStop()
		for i := range 5 {
			if wait := at.At(i + 1).Sub(at.At(i)); wait < 30*time.Second || wait > 31*time.Second {
				t.Errorf("between %d and %d: got %s, want 30s", i, i+1, wait)
			}
		}
	})
}

// TestARateDoesNotDelayOtherConsumers: others run meanwhile, and in steps, too.
func TestARateDoesNotDelayOtherConsumers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("limited", bus.RateLimit(1, time.Hour, 1)), testapp.Consumed("other"))
		a.ProduceMany(50)
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "the other is done", func() bool { return len(a.Pending()) == 49 })
		r.MustStop()
		p := testapp.Must[*outbox.Processor](t)(outbox.NewProcessor(db, a.Registry, outbox.ProcessorConfig{}))
		a.ProduceMany(1)
		for want := range 2 {
			if ran, err := p.ProcessNext(a.Context()); err != nil || ran != (want == 0) {
				t.Errorf("step %d: got %v, %v, want the one of the other consumer", want, ran, err)
			}
		}
		explained := testapp.Must[admin.Explanation](t)(a.Admin().Explain(a.Context(), db, a.Pending()[0].ID))
		if explained.Reason != admin.RateLimited || !strings.Contains(explained.Text, "1 in 1h0m0s") {
			t.Errorf("Explain: got %+v, want the rate", explained)
		}
		if len(a.Pending()) != 50 {
			t.Errorf("got %d that wait, want those of the limited consumer", len(a.Pending()))
		}
	})
}

// TestARateThatDelaysNothing: claims end with what there is, and what comes after a rest runs
// at once.
func TestARateThatDelaysNothing(t *testing.T) {
	for name, options := range map[string][]bus.ConsumerOption{"plain": nil, "ordered": {bus.Ordered(bus.BlockKey)}} {
		t.Run(name, func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				a := newApp(testapp.Consumed("often", append(options, bus.RateLimit(100, time.Second, 20))...),
					testapp.Consumed("seldom", append(options, bus.RateLimit(1, time.Minute, 1))...))
				r := a.StartWith(ctx, outbox.ProcessorConfig{})
				a.ProduceAt(ctx, order{ID: "1"}, outbox.OrderingKey("k"))
				testapp.Sooner(t, "they ran", a.Empty)
				<-time.After(90 * time.Second)
				before := r.Stats().EmptyClaims
				a.ProduceAt(ctx, order{ID: "2"}, outbox.OrderingKey("k"))
				<-time.After(2 * time.Second)
				if left := a.Pending(); len(left) > 0 {
					t.Errorf("a message within the rate: got %d that wait, want it done", len(left))
				}
				<-time.After(10 * time.Second)
				if got := r.Stats().EmptyClaims - before; got > 10 {
					t.Errorf("empty claims while nothing waits: got %d, want a few", got)
				}
				r.MustStop()
			})
		})
	}
}

// TestExpiredMessagesDoNotSpendTheRate: a burst that cannot start in time is removed, and what comes later starts in time, as the rate
// allows.
// Promise: deadline
func TestExpiredMessagesDoNotSpendTheRate(t *testing.T) {
	for name, option := range map[string]bus.ConsumerOption{"rate": bus.RateLimit(10, time.Hour, 1),
		"key rate": bus.KeyRateLimit(10, time.Hour, 1)} {
		t.Run(name, func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				var runs atomic.Int64
				a := newApp(testapp.Counting("c", &runs, option))
				r := a.StartWith(ctx, outbox.ProcessorConfig{PollInterval: time.Minute})
				produce := func() {
					a.ProduceAt(ctx, order{ID: "1"}, outbox.OrderingKey("k"), outbox.DeliverBy(time.Now().Add(time.Hour), bus.Discarded))
				}
				for range 40 { // a burst, of which ten or eleven can start
					produce()
				}
				<-time.After(2 * time.Hour)
				if n := runs.Load(); n < 9 || n > 11 || !a.Empty() {
					t.Errorf("of the burst: got %d runs, empty %t, want 9 to 11, and the others removed", n, a.Empty())
				}
				before := runs.Load()
				for range 18 { // nine an hour
					produce()
					<-time.After(400 * time.Second)
				}
				<-time.After(time.Hour)
				if got := runs.Load() - before; got != 18 {
					t.Errorf("of what the rate allows: got %d runs, want 18", got)
				}
				r.MustStop()
			})
		})
	}
}

// TestARateThatIsRaisedCountsAtOnce: what the smaller rate has used is no debt of the larger one.
func TestARateThatIsRaisedCountsAtOnce(t *testing.T) {
	for name, options := range map[string][2]bus.ConsumerOption{
		"rate":     {bus.RateLimit(20, 24*time.Hour, 20), bus.RateLimit(1000, time.Second, 100)},
		"key rate": {bus.KeyRateLimit(20, 24*time.Hour, 20), bus.KeyRateLimit(1000, time.Second, 100)},
	} {
		t.Run(name, func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				var runs atomic.Int64
				a := newApp(testapp.Counting("c", &runs, options[0]))
				for range 40 {
					a.ProduceAt(ctx, order{ID: "1"}, outbox.OrderingKey("k"))
				}
				config := outbox.ProcessorConfig{PollInterval: 5 * time.Second}
				r := a.StartWith(ctx, config)
				<-time.After(time.Minute)
				r.MustStop()
				if runs.Load() != 20 {
					t.Fatalf("got %d runs, want 20", runs.Load())
				}
				a.Registry = testapp.Must[*bus.Registry](t)(bus.NewRegistry(testapp.Counting("c", &runs, options[1])))
				r = a.StartWith(ctx, config)
				<-time.After(time.Minute)
				r.MustStop()
				if runs.Load() != 40 {
					t.Errorf("within a minute of the larger rate: got %d runs, want 40", runs.Load())
				}
			})
		})
	}
}

// Crashed messages are claimed beside the rate, and count nothing. Those that never start give back what they did not use.
func TestWhatCrashedGivesNothingBackToARate(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var at testapp.Moments
		a := newApp(bus.Consume("c", func(context.Context, order) error { at.Add(); return nil }, bus.RateLimit(10, time.Hour, 10)))
		for range 200 {
			a.ProduceAt(ctx, order{ID: "clean"})
		}
		for i := range 100 {
			a.ProduceAt(ctx, order{ID: "late"}, outbox.Delay(time.Duration(10+i)*time.Second),
				outbox.DeliverBy(time.Now().Add(time.Duration(10+i)*time.Second+time.Millisecond), bus.Discarded))
		}
		a.Exec("UPDATE consumer_messages SET crashes = 1 WHERE payload LIKE '%late%'")
		r := a.StartWith(ctx, outbox.ProcessorConfig{})
		<-time.After(12 * time.Minute)
		r.MustStop()
		if n := at.Len(); n > 13 {
			t.Errorf("%d started within 12 min, want 2 and a burst of 10, and one more at most", n)
		}
	})
}

// rates are five an hour, of a consumer and of a key.
func rates() map[string]bus.ConsumerOption {
	return map[string]bus.ConsumerOption{"rate": bus.RateLimit(5, time.Hour, 5), "key rate": bus.KeyRateLimit(5, time.Hour, 5)}
}

func produceKeyed(ctx context.Context, a *app, n int, options ...outbox.Option) {
	a.Helper()
	for i := range n {
		a.ProduceAt(ctx, order{ID: fmt.Sprint(i)}, append(options, outbox.OrderingKey("k"))...)
	}
}

// TestUnstartedMessagesAreReturnedToTheRateAtOnce: two hours later the rate has regained it anyway, and what another process has
// started since counts.
// Promise: limits
func TestUnstartedMessagesAreReturnedToTheRateAtOnce(t *testing.T) {
	for name, rate := range rates() {
		t.Run(name, func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				var runs atomic.Int64
				a, b := newApp(testapp.Counting("c", &runs, rate)), newApp(testapp.Counting("c", &runs, rate))
				produceKeyed(ctx, a, 5, outbox.DeliverBy(time.Now().Add(time.Second), bus.Discarded))
				<-time.After(5 * time.Second)
				r := a.StartWith(ctx, outbox.ProcessorConfig{PollInterval: 10 * time.Second})
				testapp.Sooner(t, "the expired ones are discarded", a.Empty)
				<-time.After(2 * time.Hour)
				produceKeyed(ctx, b, 5)
				if n := steps(ctx, b, newProcessor(b, outbox.ProcessorConfig{})); n != 5 {
					t.Fatalf("the other process ran %d messages, want 5", n)
				}
				produceKeyed(ctx, b, 5)
				<-time.After(5 * time.Minute)
				r.MustStop()
				if n := runs.Load(); n != 5 {
					t.Errorf("within five minutes: got %d runs, want 5", n)
				}
			})
		})
	}
}

// TestAnOpenBreakerReturnsWhatItReleasesToTheRate at once: later, the rate has regained it anyway.
// Promise: limits
func TestAnOpenBreakerReturnsWhatItReleasesToTheRate(t *testing.T) {
	for name, rate := range map[string]bus.ConsumerOption{
		"rate": bus.RateLimit(5, 5*time.Minute, 5), "key rate": bus.KeyRateLimit(5, 5*time.Minute, 5),
	} {
		t.Run(name, func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				var runs atomic.Int64
				b := newApp(testapp.Counting("c", &runs, rate))
				a := newApp(bus.ConsumeBatch("c", func(_ context.Context, items []order) error {
					runs.Add(int64(len(items)))
					return nil
				}, bus.BatchSize(10), bus.BatchWait(time.Second), rate, bus.CircuitBreaker(bus.CircuitBreakerConfig{Cooldown: time.Hour})))
				r := a.StartWith(ctx, outbox.ProcessorConfig{})
				produceKeyed(ctx, a, 4)
				testapp.Sooner(t, "a batch waits", func() bool { return r.Stats().Queued == 4 }) // the breaker opens before it is over
				a.Exec("INSERT INTO message_breakers (name, half_since, opened, opened_at, open_until) VALUES ('c', ?, 1, ?, ?)",
					time.Now().UnixMicro(), time.Now().UnixMicro(), time.Now().Add(time.Hour).UnixMicro())
				testapp.Sooner(t, "it is given back", func() bool { return r.Stats().Queued == 0 && len(r.Health().OpenCircuits) == 1 })
				<-time.After(5 * time.Minute)
				produceKeyed(ctx, b, 16)
				if n := steps(ctx, b, newProcessor(b, outbox.ProcessorConfig{})); n != 5 {
					t.Fatalf("the other process ran %d messages, want 5", n)
				}
				a.Exec("DELETE FROM message_breakers")
				<-time.After(30 * time.Second)
				r.MustStop()
				if n := runs.Load(); n != 5 {
					t.Errorf("within 30 s: got %d runs, want 5", n)
				}
			})
		})
	}
}

// TestAStopReturnsWhatItReleasesToTheRate: the next process starts it at once.
// Promise: limits
func TestAStopReturnsWhatItReleasesToTheRate(t *testing.T) {
	for name, rate := range rates() {
		t.Run(name, func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				var runs atomic.Int64
				a := newApp(bus.ConsumeBatch("c", func(_ context.Context, items []order) error {
					runs.Add(int64(len(items)))
					return nil
				}, bus.BatchSize(10), bus.BatchWait(time.Second), rate))
				produceKeyed(ctx, a, 4)
				r := a.StartWith(ctx, outbox.ProcessorConfig{})
				<-time.After(500 * time.Millisecond)
				r.MustStop()
				if n := runs.Load(); n != 0 {
					t.Fatalf("before the stop: got %d runs, want a batch that waits", n)
				}
				r = a.StartWith(ctx, outbox.ProcessorConfig{})
				<-time.After(10 * time.Second)
				if n := runs.Load(); n != 4 {
					t.Errorf("within 10 s of the next start: got %d runs, want 4", n)
				}
				r.MustStop()
			})
		})
	}
}

// TestAClaimWhoseMessagesCannotRunReturnsToTheRateOnce what it returned: it was committed.
// Promise: limits
func TestAClaimWhoseMessagesCannotRunReturnsToTheRateOnce(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var runs atomic.Int64
		former := newApp(testapp.Consumed("former"))
		a := newApp(testapp.Counting("c", &runs, bus.Aliases("former"), bus.Forwards(), bus.RateLimit(10, time.Hour, 10)))
		hook := &failNth{match: "SET consumer_type", n: 2}
		a.DB = a.DB.WithQueryHook(hook)
		for range 5 {
			former.ProduceAt(ctx, order{ID: "1"}, outbox.DeliverBy(time.Now().Add(time.Second), bus.Discarded))
		}
		<-time.After(5 * time.Second)
		for range 20 {
			former.ProduceAt(ctx, order{ID: "2"})
		}
		r := a.StartWith(ctx, outbox.ProcessorConfig{})
		<-time.After(5 * time.Minute)
		if n := runs.Load(); n != 10 || hook.seen.Load() < 3 {
			t.Errorf("within five minutes: got %d runs and %d renames, want 10 and 3 or more", n, hook.seen.Load())
		}
		r.MustStop()
	})
}

// failNth is a hook that has the nth matching statement fail.
type failNth struct {
	match string
	n     int64
	seen  atomic.Int64
}

func (h *failNth) BeforeQuery(ctx context.Context, event *bun.QueryEvent) context.Context {
	if !strings.Contains(event.Query, h.match) || h.seen.Add(1) != h.n {
		return ctx
	}
	failed, cancel := context.WithCancel(ctx)
	cancel()
	return failed
}

func (h *failNth) AfterQuery(context.Context, *bun.QueryEvent) {}

// TestASingleExpiredMessageDoesNotSpendTheRate: ProcessNext has no next claim that would return it.
// Promise: deadline
func TestASingleExpiredMessageDoesNotSpendTheRate(t *testing.T) {
	for name, rate := range rates() {
		t.Run(name, func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				var runs atomic.Int64
				a := newApp(testapp.Counting("c", &runs, rate))
				produceKeyed(ctx, a, 5, outbox.DeliverBy(time.Now().Add(time.Second), bus.Discarded))
				<-time.After(5 * time.Second)
				produceKeyed(ctx, a, 6)
				if n := steps(ctx, a, newProcessor(a, outbox.ProcessorConfig{})); n != 10 || runs.Load() != 5 {
					t.Errorf("got %d messages, of which %d ran, want 10 and 5", n, runs.Load())
				}
			})
		})
	}
}

// TestARateIsUsedWhateverElseWaits: a batch that is to fill, or a message that is to run solo, keeps nothing of what
// the rates of its consumer allow from starting.
// Promise: due-starts
func TestARateIsUsedWhateverElseWaits(t *testing.T) {
	const seconds = 10
	for name, test := range map[string]struct {
		rate    int // a second, of all keys together
		options []bus.ConsumerOption
		killer  bool
	}{
		"a batch": {20, []bus.ConsumerOption{bus.RateLimit(20, time.Second, 1), bus.BatchSize(100), bus.BatchWait(time.Second)},
			false},
		"what crashed twice":                 {20, []bus.ConsumerOption{bus.RateLimit(20, time.Second, 1)}, true},
		"what crashed twice, and a burst":    {100, []bus.ConsumerOption{bus.RateLimit(100, time.Second, 10)}, true},
		"what crashed twice, of another key": {40, []bus.ConsumerOption{bus.KeyRateLimit(20, time.Second, 1)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				var ran atomic.Int64
				a := newApp(bus.ConsumeBatch("c", func(_ context.Context, orders []order) error {
					ran.Add(int64(len(orders)))
					return nil
				}, test.options...))
				var items []outbox.Item
				for i := range (seconds + 5) * test.rate {
					items = append(items, outbox.Item{Payload: order{ID: "clean"}, Options: []outbox.Option{outbox.OrderingKey(fmt.Sprint(i % 2))}})
				}
				testapp.OK(t, testapp.Second(a.Producer.ProduceMany(ctx, a.DB, items...)))
				a.ProduceAt(ctx, order{ID: "last"}, outbox.OrderingKey("other"))
				if test.killer {
					a.Exec("UPDATE consumer_messages SET crashes = 2 WHERE payload LIKE '%last%'")
				}
				r := a.StartWith(ctx, outbox.ProcessorConfig{})
				<-time.After(seconds * time.Second)
				if n, want := int(ran.Load()), seconds*test.rate; n < want-2*test.rate || n > want+test.rate {
					t.Errorf("got %d runs in %d s, want about %d", n, seconds, want)
				}
				r.MustStop()
			})
		})
	}
}
