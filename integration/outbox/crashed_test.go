package outbox_test

import (
	"context"
	"errors"
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

// keepsNothingFrom: a consumer whose crashed message may not start (its circuit is open, or it is at its own Concurrency) keeps
// the only free place that it shares with another consumer, although it could not use it.
func keepsNothingFrom(t *testing.T, away, tx bool, a, b []bus.ConsumerOption, aTakes time.Duration) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var circuit outbox.Circuit
		var ran atomic.Int64
		var first, last time.Time
		if away {
			a = append(a, outbox.WithCircuit(&circuit))
		}
		one := func(ctx context.Context, o order) error {
			if away {
				return circuit.Trip(errors.New("away"))
			}
			select {
			case <-time.After(aTakes):
			case <-ctx.Done():
			}
			return nil
		}
		other := func(context.Context, refund) error {
			if last = time.Now(); ran.Add(1) == 1 {
				first = last
			}
			return nil
		}
		var consumers []bus.Consumer
		if tx {
			consumers = []bus.Consumer{
				outbox.ConsumeTx("a", func(ctx context.Context, _ bun.Tx, o order) error { return one(ctx, o) },
					append(a, bus.Timeout(4*time.Second))...),
				outbox.ConsumeTx("b", func(ctx context.Context, _ bun.Tx, o refund) error { return other(ctx, o) },
					append(b, bus.Timeout(4*time.Second))...)}
		} else {
			consumers = []bus.Consumer{bus.Consume("a", one, a...), bus.Consume("b", other, b...)}
		}
		ap := newApp(consumers...)
		r := ap.StartWith(ctx, outbox.ProcessorConfig{LeaseDuration: 3 * time.Second, PollInterval: time.Second / 2, Concurrency: 8})
		ap.ProduceAt(ctx, order{ID: "first"}) // opens the circuit, or runs long
		<-time.After(20 * time.Second)
		ap.ProduceAt(ctx, order{ID: "crashed"})
		ap.Exec("UPDATE consumer_messages SET crashes = 1 WHERE payload LIKE '%crashed%'")
		<-time.After(5 * time.Second)
		for range 50 {
			ap.ProduceAt(ctx, refund{ID: "x"})
		}
		began := time.Now()
		<-time.After(40 * time.Second)
		t.Logf("the first of b began after %s, the last after %s", first.Sub(began), last.Sub(began))
		if n := ran.Load(); n < 50 || last.Sub(began) > 6*time.Second {
			for _, m := range ap.Pending() {
				e, err := ap.Admin().Explain(ctx, ap.DB, m.ID)
				t.Logf("%s %s: %v %q %v", m.ConsumerType, m.Payload, e.Reason, e.Text, err)
				if m.ConsumerType == "b" {
					break
				}
			}
			t.Errorf("%d of b have run in 40 s, want 50 within a lease and a poll", n)
			testapp.Poll(t, "b runs", 2*time.Hour, time.Second, func() bool { return ran.Load() == 50 })
			t.Errorf("the last began after %s", time.Since(began))
		}
		r.MustStop()
	})
}

func TestCrashedBehindACircuitLeavesTheSharedSlot(t *testing.T) {
	s := []bus.ConsumerOption{bus.SharedConcurrency("s", 1)}
	keepsNothingFrom(t, true, false, s, s, 0)
}

func TestCrashedBehindACircuitLeavesTheTransaction(t *testing.T) {
	keepsNothingFrom(t, true, true, nil, nil, 0)
}

func TestCrashedAtItsConcurrencyLeavesTheSharedSlot(t *testing.T) {
	keepsNothingFrom(t, false, false,
		[]bus.ConsumerOption{bus.SharedConcurrency("s", 2), bus.Concurrency(1), bus.Timeout(30 * time.Minute)},
		[]bus.ConsumerOption{bus.SharedConcurrency("s", 2)}, 20*time.Minute)
}

// holdsUpNoCrashed: a's crashed message cannot start, since a is at its Concurrency for 20 min. b's crashed messages must run.
func holdsUpNoCrashed(t *testing.T, ofA, ofB, nB int, within time.Duration) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var ran atomic.Int64
		a := newApp(
			bus.Consume("a", func(ctx context.Context, o order) error {
				select {
				case <-time.After(20 * time.Minute):
				case <-ctx.Done():
				}
				return nil
			}, bus.Concurrency(1), bus.Timeout(30*time.Minute)),
			bus.Consume("b", func(context.Context, refund) error { ran.Add(1); return nil }))
		r := a.StartWith(ctx, outbox.ProcessorConfig{LeaseDuration: 3 * time.Second, PollInterval: time.Second / 2, Concurrency: 8})
		a.ProduceAt(ctx, order{ID: "first"})
		<-time.After(40 * time.Second)
		a.ProduceAt(ctx, order{ID: "crashed"})
		a.Exec("UPDATE consumer_messages SET crashes = ? WHERE payload LIKE '%crashed%'", ofA)
		<-time.After(5 * time.Second)
		for range nB {
			a.ProduceAt(ctx, refund{ID: "x"}, outbox.Delay(time.Second))
		}
		a.Exec("UPDATE consumer_messages SET crashes = ? WHERE consumer_type = 'b'", ofB)
		began := time.Now()
		<-time.After(within)
		if n := ran.Load(); n < int64(nB) {
			t.Errorf("%d of b's %d crashed messages have run within %s", n, nB, within)
			for _, m := range a.Pending() {
				e, err := a.Admin().Explain(ctx, a.DB, m.ID)
				t.Logf("%s %s: %v %q %v", m.ConsumerType, m.Payload, e.Reason, e.Text, err)
			}
			testapp.Poll(t, "b runs", 2*time.Hour, time.Second, func() bool { return ran.Load() == int64(nB) })
			t.Errorf("the last began after %s", time.Since(began))
		}
		r.MustStop()
	})
}

// A message of a that crashed twice, and cannot start, holds up those of b that crashed once.
func TestCrashedTwiceAtItsConcurrencyHoldsUpNoneThatCrashedOnce(t *testing.T) {
	holdsUpNoCrashed(t, 2, 1, 3, 30*time.Second)
}

// A message of a that crashed once, and cannot start, holds up those of b that crashed twice.
func TestCrashedOnceAtItsConcurrencyHoldsUpNoneThatCrashedTwice(t *testing.T) {
	holdsUpNoCrashed(t, 1, 2, 3, time.Minute)
}

// TestACrashedMessageIsNotBehindTheBacklogOfItsKey: it runs apart, and so is claimed apart. The clean messages of its key would
// take each place that the key has before that.
func TestACrashedMessageIsNotBehindTheBacklogOfItsKey(t *testing.T) {
	for _, crashes := range []int{1, 2} {
		for name, option := range map[string]bus.ConsumerOption{
			"KeyConcurrency": bus.KeyConcurrency(1), "KeyRateLimit": bus.KeyRateLimit(1, time.Second, 1),
		} {
			t.Run(fmt.Sprintf("%s, %d crashes", name, crashes), func(t *testing.T) {
				testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
					var ran, crashedAt, others atomic.Int64
					a := newApp(bus.Consume("c", func(ctx context.Context, o order) error {
						<-time.After(time.Second)
						switch ran.Add(1); o.ID {
						case "crashed":
							crashedAt.Store(ran.Load())
						case "other":
							others.Add(1)
						}
						return nil
					}, option))
					const backlog = 80
					for i := range backlog {
						a.ProduceAt(ctx, order{ID: "clean"}, outbox.OrderingKey("k"))
						if i == 0 {
							a.ProduceAt(ctx, order{ID: "crashed"}, outbox.OrderingKey("k"))
						}
					}
					for range 10 {
						a.ProduceAt(ctx, order{ID: "other"}, outbox.OrderingKey("another"))
					}
					a.Exec("UPDATE consumer_messages SET crashes = ? WHERE payload LIKE '%crashed%'", crashes)
					if name == "KeyConcurrency" {
						explained(t, ctx, a)
					}
					r := a.StartWith(ctx, outbox.ProcessorConfig{LeaseDuration: 3 * time.Second, PollInterval: time.Second / 2, Concurrency: 8})
					<-time.After(45 * time.Second)
					if crashedAt.Load() == 0 || crashedAt.Load() > 50 || others.Load() != 10 {
						t.Errorf("after 45 s the crashed message ran as %d of %d, and %d of another key ran: want it early, and 10",
							crashedAt.Load(), ran.Load(), others.Load())
					}
					r.MustStop()
				})
			})
		}
	}
}

// TestACrashedMessageThatDoesNotStartIsReturnedToTheRateOfItsKey, which counts it like any other.
func TestACrashedMessageThatDoesNotStartIsReturnedToTheRateOfItsKey(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var runs atomic.Int64
		a := newApp(testapp.Counting("c", &runs, bus.KeyRateLimit(1, time.Hour, 1)))
		produceKeyed(ctx, a, 1, outbox.DeliverBy(time.Now().Add(time.Second), bus.Discarded))
		a.Exec("UPDATE consumer_messages SET crashes = 1")
		produceKeyed(ctx, a, 1)
		<-time.After(5 * time.Second)
		r := a.StartWith(ctx, outbox.ProcessorConfig{})
		<-time.After(5 * time.Minute)
		if n := runs.Load(); n != 1 {
			t.Errorf("within five minutes of a crashed message that had expired: got %d runs, want 1", n)
		}
		r.MustStop()
	})
}

// explained: Explain says of a clean message that a crashed one has the place.
// TestCrashedMessagesOfSeveralKeyedConsumersStartAtOnce: one claim looks at the keys of one consumer, and the next one follows.
// Promise: due-starts
func TestCrashedMessagesOfSeveralKeyedConsumersStartAtOnce(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		const consumers = 12
		var ran atomic.Int64
		var all []bus.Consumer
		for i := range consumers {
			var options []bus.ConsumerOption
			if i > 0 { // the first has no keys
				options = append(options, bus.Ordered(bus.BlockKey))
			}
			all = append(all, testapp.Counting(fmt.Sprint("c", i), &ran, options...))
		}
		a := newApp(all...)
		a.ProduceAt(ctx, order{ID: "1"}, outbox.OrderingKey("k"))
		a.Exec("UPDATE consumer_messages SET crashes = 1")
		r := a.StartWith(ctx, outbox.ProcessorConfig{LeaseDuration: 3 * time.Second, PollInterval: 10 * time.Second})
		<-time.After(9 * time.Second)
		if n := ran.Load(); n != consumers {
			t.Errorf("before the second poll: got %d runs, want %d", n, consumers)
		}
		r.MustStop()
	})
}

func explained(t *testing.T, ctx context.Context, a *app) {
	t.Helper()
	for _, m := range a.Pending() {
		if !strings.Contains(m.Payload, "clean") || m.Crashes > 0 {
			continue
		}
		e, err := a.Admin().Explain(ctx, a.DB, m.ID)
		if want := `0 messages of key "k" are claimed, and 1 that crashed keep their places.`; err != nil ||
			e.Reason != admin.KeyLimited || !strings.Contains(e.Text, want) {
			t.Errorf("Explain: got %q (%s), %v, want %q with %q", e.Reason, e.Text, err, admin.KeyLimited, want)
		}
		return
	}
	t.Error("no clean message is pending")
}

// TestNothingWaitsInASoloClaim has a suspect whose consumer is busy: it is not claimed
// solo until it can run, since it would be blamed when its process dies.
func TestNothingWaitsInASoloClaim(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var ran atomic.Int64
		running, finish := make(chan struct{}), make(chan struct{})
		a := testapp.New(t, db, bus.Consume("c", func(ctx context.Context, o order) error {
			if o.ID == "suspect" {
				ran.Add(1)
				return nil
			}
			close(running)
			<-finish
			return nil
		}, bus.Timeout(time.Minute), bus.Concurrency(1)))
		a.Produce(order{ID: "long"})
		a.Start(outbox.ProcessorConfig{LeaseDuration: time.Second, PollInterval: 50 * time.Millisecond})
		<-running
		a.Produce(order{ID: "suspect"})
		a.Exec(`UPDATE consumer_messages SET crashes = 2 WHERE payload LIKE '%suspect%'`)
		// Calm has lasted for long enough after 3 s.
		ticks := time.NewTicker(20 * time.Millisecond)
		defer ticks.Stop()
		for range 225 {
			<-ticks.C
			if n := a.Count(`SELECT count(*) FROM message_claims WHERE solo`); n > 0 {
				t.Fatalf("claims that are solo while nothing of them can run: got %d, want none", n)
			}
		}
		close(finish)
		testapp.Eventually(t, "the suspect has run", func() bool { return ran.Load() == 1 })
	})
}
