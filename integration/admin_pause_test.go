package integration_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestPausedConsumerStandsStill pauses one of two consumers while two processors
// drain them. The consumers are slow enough for most to be left.
func TestPausedConsumerStandsStill(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		const messages = 400
		var paused, other atomic.Int64
		slow := func(n *atomic.Int64) func(context.Context, order) error {
			return func(ctx context.Context, _ order) error {
				select {
				case <-time.After(25 * time.Millisecond):
				case <-ctx.Done():
				}
				n.Add(1)
				return ctx.Err()
			}
		}
		a := newApp(t, db, bus.Consume("paused", slow(&paused), bus.Concurrency(2)), bus.Consume("other", slow(&other), bus.Concurrency(8)))
		admin, ctx := a.admin(), t.Context()
		a.produceMany(messages)
		first, second := a.start(fast()), a.start(fast())
		eventually(t, "both are at work", func() bool { return paused.Load() > 10 && other.Load() > 10 })
		if err := admin.Pause(ctx, db, "paused"); err != nil {
			t.Fatal(err)
		}
		// Nothing is claimed any more; what is claimed ends.
		claimed := outbox.Filter{Consumer: "paused", State: outbox.Leased}
		eventually(t, "what was claimed has run or was given back", func() bool { return must[int](t)(admin.Count(ctx, db, claimed)) == 0 })
		stood := paused.Load()
		if left := must[int](t)(admin.Count(ctx, db, outbox.Filter{Consumer: "paused"})); left == 0 || int64(left)+stood != messages {
			t.Fatalf("left: got %d after %d runs, want %d in all, and some", left, stood, messages)
		}
		eventually(t, "the other drains", func() bool { return other.Load() == messages })
		first.mustStop()
		second.mustStop()
		if n := paused.Load(); n != stood {
			t.Errorf("runs of the paused consumer: got %d, want the %d at the pause", n, stood)
		}
		// It outlives the processes.
		third := a.start(fast())
		a.produce(order{ID: "new"})
		eventually(t, "the other takes the new one", func() bool { return other.Load() == messages+1 })
		if n := paused.Load(); n != stood {
			t.Errorf("runs after a restart: got %d, want the %d at the pause", n, stood)
		}
		if err := admin.Resume(ctx, db, "paused"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "everything has run", func() bool { return paused.Load() == messages+1 && a.empty() })
		third.mustStop()
	})
}

// TestResumeWakesThisProcess: a processor that polls once an hour begins at once.
func TestResumeWakesThisProcess(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var runs atomic.Int64
		a := newApp(t, db, counting("c", &runs, bus.Aliases("former")))
		admin, ctx := a.admin(), t.Context()
		if err := admin.Pause(ctx, db, "former"); err != nil { // by a former name
			t.Fatal(err)
		}
		config := fast()
		config.PollInterval = time.Hour
		r := a.start(config)
		eventually(t, "it has looked once", func() bool { return r.Health().Ready })
		a.produceMany(3)
		eventually(t, "the wake-up was answered", func() bool { return r.Stats().EmptyClaims > 0 })
		if runs.Load() > 0 {
			t.Errorf("runs while it is paused: got %d, want none", runs.Load())
		}
		if err := admin.Resume(ctx, db, "c"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "all run", func() bool { return runs.Load() == 3 && a.empty() })
		r.mustStop()
	})
}
