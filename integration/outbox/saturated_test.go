package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// One process is at its Concurrency with calls that take long. What is due starts in the other one, soon.
func TestASaturatedProcessLeavesMessagesToOthers(t *testing.T) {
	for kind, o := range map[string][]bus.ConsumerOption{
		"plain":           nil,
		"rate":            {bus.RateLimit(1000, time.Second, 20)},
		"slow rate":       {bus.RateLimit(50, time.Second, 5)},
		"limit":           {bus.GlobalConcurrency(10)},
		"limit rate":      {bus.GlobalConcurrency(10), bus.RateLimit(1000, time.Second, 20)},
		"key rate":        {bus.KeyRateLimit(1000, time.Second, 20)},
		"fair":            {bus.Fair()},
		"fair rate":       {bus.Fair(), bus.RateLimit(1000, time.Second, 20)},
		"ordered":         {bus.Ordered(bus.BlockKey)},
		"ordered rate":    {bus.Ordered(bus.BlockKey), bus.RateLimit(1000, time.Second, 20)},
		"priorities rate": {bus.Prioritized(time.Minute), bus.RateLimit(1000, time.Second, 20)},
	} {
		t.Run(kind, func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				var ran, busy atomic.Int64
				a := newApp(bus.Consume("c", func(ctx context.Context, o order) error {
					if o.N > 0 {
						busy.Add(1)
						select {
						case <-time.After(30 * time.Minute):
						case <-ctx.Done():
						}
						return nil
					}
					ran.Add(1)
					return nil
				}, append(o, bus.Concurrency(2), bus.Timeout(time.Hour))...))
				config := outbox.ProcessorConfig{LeaseDuration: 3 * time.Second, PollInterval: time.Second / 2, Concurrency: 8}
				r := a.StartWith(ctx, config)
				for i := range 2 {
					a.ProduceAt(ctx, order{ID: "long", N: 1}, outbox.OrderingKey(fmt.Sprint("l", i)))
				}
				testapp.Sooner(t, "busy", func() bool { return busy.Load() == 2 })
				s := a.StartWith(ctx, config)
				<-time.After(5 * time.Second)
				var worst time.Duration
				for i := range 100 {
					began := time.Now()
					a.ProduceAt(ctx, order{ID: "x"}, outbox.OrderingKey(fmt.Sprint("x", i)))
					testapp.Sooner(t, "it ran", func() bool { return ran.Load() == int64(i+1) })
					worst = max(worst, time.Since(began))
				}
				t.Logf("worst %s", worst)
				if worst > 4*time.Second {
					t.Errorf("worst %s", worst)
				}
				if err := r.Wait(); err != nil {
					t.Log(err)
				}
				s.MustStop()
			})
		})
	}
}

// Backlogs of some consumers use each worker, each place for a transaction or each slot of a limit as soon as it is free. A
// message of another consumer that shares them runs soon after.
// Promise: due-starts, held-up
func TestABacklogLeavesPlacesToConsumersThatShareThem(t *testing.T) {
	t.Parallel()
	const messages = 8000
	type makes = func(name string, backlog, other func() error, own ...bus.ConsumerOption) []bus.Consumer
	plain := func(shared ...bus.ConsumerOption) makes {
		return func(name string, backlog, other func() error, own ...bus.ConsumerOption) []bus.Consumer {
			return []bus.Consumer{
				bus.Consume(name, func(context.Context, order) error { return backlog() }, shared...),
				bus.Consume("other", func(context.Context, refund) error { return other() }, append(own, shared...)...),
			}
		}
	}
	transactional := func(name string, backlog, other func() error, own ...bus.ConsumerOption) []bus.Consumer {
		return []bus.Consumer{
			outbox.ConsumeTx(name, func(context.Context, bun.Tx, order) error { return backlog() }),
			outbox.ConsumeTx("other", func(context.Context, bun.Tx, refund) error { return other() }, own...),
		}
	}
	limit, rate := bus.GlobalConcurrency(1), bus.RateLimit(100, time.Second, 1)
	own := func(o ...bus.ConsumerOption) func(*outbox.Circuit) []bus.ConsumerOption {
		return func(*outbox.Circuit) []bus.ConsumerOption { return o }
	}
	open := func(circuit *outbox.Circuit) []bus.ConsumerOption {
		_ = circuit.Trip(errAway)
		return []bus.ConsumerOption{outbox.WithCircuit(circuit)}
	}
	one, three, shared := outbox.ProcessorConfig{Concurrency: 1}, outbox.ProcessorConfig{Concurrency: 3}, bus.SharedConcurrency("provider", 2)
	for what, c := range map[string]struct {
		backlogs  int
		config    outbox.ProcessorConfig
		consumers makes
		own       func(*outbox.Circuit) []bus.ConsumerOption
	}{
		"a worker":                       {1, one, plain(), own()},
		"a worker, beside a limit":       {1, one, plain(), own(limit)},
		"a worker, beside a rate":        {1, one, plain(), own(rate)},
		"a worker, behind a circuit":     {1, one, plain(), open},
		"few workers":                    {3, three, plain(), own()},
		"few workers, behind a circuit":  {3, three, plain(), open},
		"a limit":                        {1, outbox.ProcessorConfig{}, plain(shared), own()},
		"a limit, behind a circuit":      {1, outbox.ProcessorConfig{}, plain(shared), open},
		"transactions":                   {1, outbox.ProcessorConfig{}, transactional, own()},
		"transactions, beside a limit":   {1, outbox.ProcessorConfig{}, transactional, own(limit)},
		"transactions, behind a circuit": {1, outbox.ProcessorConfig{}, transactional, open},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				var ran, others atomic.Int64
				run := func(n *atomic.Int64) func() error {
					return func() error {
						n.Add(1)
						<-time.After(10 * time.Millisecond)
						return nil
					}
				}
				var all []bus.Consumer
				circuit, since := new(outbox.Circuit), time.Now()
				options := c.own(circuit)
				for i := range c.backlogs {
					made := c.consumers(fmt.Sprint("backlog-", i), run(&ran), run(&others), options...)
					all = append(all[:i], made...) // the other is last, once
				}
				a := testapp.New(t, db, all...)
				a.ProduceMany(messages)
				r := a.Start(c.config)
				testapp.Eventually(t, "the backlog runs, and an open circuit may be probed", func() bool {
					return ran.Load() >= 100 && time.Since(since) > 1100*time.Millisecond
				})
				a.Produce(refund{ID: "1"})
				before := ran.Load()
				if before > messages-1000 {
					t.Errorf("%d of %d of the backlog have run already: want a backlog", before, messages)
				}
				testapp.Eventually(t, "the other runs", func() bool { return others.Load() == 1 || ran.Load()-before > 700 })
				if after := ran.Load() - before; after > 700 {
					t.Errorf("%d more of the backlog ran before the other", after)
				}
				r.MustStop()
			})
		})
	}
}

// part is an app of the same database with some of the consumers.
func part(a *app, consumers ...bus.Consumer) *app {
	other := *a
	other.Registry = testapp.Must[*bus.Registry](a.T)(bus.NewRegistry(consumers...))
	other.Producer = testapp.Must[*outbox.Producer](a.T)(outbox.NewProducer(other.Registry, outbox.ProducerConfig{}))
	return &other
}

// leavesToOthers: all workers of one process are busy for long with other consumers. What of c is due starts in the other process.
func leavesToOthers(t *testing.T, options []bus.ConsumerOption, away bool, crashes int, bound time.Duration) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var ran, busy atomic.Int64
		var back atomic.Bool
		back.Store(!away)
		hog := func(ctx context.Context) error {
			busy.Add(1)
			select {
			case <-time.After(5 * time.Hour):
			case <-ctx.Done():
			}
			return nil
		}
		c := bus.Consume("c", func(context.Context, order) error {
			if !back.Load() {
				return errors.New("away")
			}
			ran.Add(1)
			return nil
		}, append(options, bus.AttemptDelay(time.Second), bus.MaxAttempts(1000))...)
		a := newApp(c,
			bus.Consume("hog1", func(ctx context.Context, _ refund) error { return hog(ctx) }, bus.Timeout(59*time.Minute)),
			bus.Consume("hog2", func(ctx context.Context, _ step) error { return hog(ctx) }, bus.Timeout(59*time.Minute)))
		b := part(a, c)
		config := outbox.ProcessorConfig{LeaseDuration: 3 * time.Second, PollInterval: time.Second / 2, Concurrency: 2}
		r := a.StartWith(ctx, config)
		a.ProduceAt(ctx, refund{ID: "1"})
		a.ProduceAt(ctx, step{"a", 1})
		testapp.Sooner(t, "busy", func() bool { return busy.Load() == 2 })
		<-time.After(370 * time.Millisecond)
		s := b.StartWith(ctx, config)
		<-time.After(30 * time.Second)
		var worst time.Duration
		for i := range 20 {
			if away {
				back.Store(false)
			}
			for range 5 {
				b.ProduceAt(ctx, order{ID: fmt.Sprint(i)}, outbox.Delay(time.Second))
			}
			if crashes > 0 {
				a.Exec("UPDATE consumer_messages SET crashes = ? WHERE consumer_type = 'c'", crashes)
			}
			if away {
				testapp.Sooner(t, "open", func() bool { return len(s.Health().OpenCircuits) > 0 })
				<-time.After(time.Second)
				back.Store(true)
			} else {
				<-time.After(time.Second)
			}
			began := time.Now()
			testapp.Sooner(t, "all ran", func() bool { return ran.Load() == int64(5*(i+1)) })
			worst = max(worst, time.Since(began))
			if away {
				testapp.Sooner(t, "closed", func() bool { return len(s.Health().OpenCircuits) == 0 })
			}
			if busy.Load() > 2 {
				break // the hogs run again
			}
		}
		if worst > bound {
			t.Errorf("worst %s, want %s", worst, bound)
		}
		t.Logf("worst %s", worst)
		_ = r.Wait()
		s.MustStop()
	})
}

func TestABusyProcessLeavesTheProbe(t *testing.T) {
	for _, cooldown := range []time.Duration{5 * time.Second, 5300 * time.Millisecond, 5600 * time.Millisecond, 5900 * time.Millisecond} {
		t.Run(cooldown.String(), func(t *testing.T) {
			breaker := bus.CircuitBreaker(bus.CircuitBreakerConfig{MinRequests: 2, Cooldown: cooldown})
			leavesToOthers(t, []bus.ConsumerOption{breaker}, true, 0, 12*time.Second)
		})
	}
}

func TestABusyProcessLeavesWhatCrashedOnce(t *testing.T) {
	leavesToOthers(t, nil, false, 1, 5*time.Second)
}

func TestABusyProcessLeavesWhatCrashedTwice(t *testing.T) {
	leavesToOthers(t, nil, false, 2, 15*time.Second)
}

func TestABusyProcessLeavesTheRate(t *testing.T) {
	leavesToOthers(t, []bus.ConsumerOption{bus.RateLimit(1000, time.Second, 50)}, false, 0, 5*time.Second)
}

func TestABusyProcessLeavesTheLimit(t *testing.T) {
	leavesToOthers(t, []bus.ConsumerOption{bus.GlobalConcurrency(1)}, false, 0, 5*time.Second)
}

func TestABusyProcessLeavesTheLimitWithARate(t *testing.T) {
	leavesToOthers(t, []bus.ConsumerOption{bus.GlobalConcurrency(1), bus.RateLimit(1000, time.Second, 50)}, false, 0, 5*time.Second)
}

func TestABusyProcessLeavesTheLimitOfWhatCrashed(t *testing.T) {
	leavesToOthers(t, []bus.ConsumerOption{bus.GlobalConcurrency(1)}, false, 1, 5*time.Second)
}
