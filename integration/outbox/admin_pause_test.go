package outbox_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
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
		a := testapp.New(t, db, bus.Consume("paused", slow(&paused), bus.Concurrency(2)), bus.Consume("other", slow(&other), bus.Concurrency(8)))
		client, ctx := a.Admin(), t.Context()
		a.ProduceMany(messages)
		first, second := a.Start(testapp.Fast()), a.Start(testapp.Fast())
		testapp.Eventually(t, "both are at work", func() bool { return paused.Load() > 10 && other.Load() > 10 })
		testapp.OK(t, client.Pause(ctx, db, "paused", admin.PauseNote{}))
		// Nothing is claimed any more; what is claimed ends.
		claimed := admin.Filter{Consumer: "paused", State: admin.Leased}
		testapp.Eventually(t, "what was claimed has run or was given back",
			func() bool { return testapp.Must[int](t)(client.Count(ctx, db, claimed)) == 0 })
		stood := paused.Load()
		if left := testapp.Must[int](t)(client.Count(ctx, db, admin.Filter{Consumer: "paused"})); left == 0 || int64(left)+stood != messages {
			t.Fatalf("left: got %d after %d runs, want %d in all, and some", left, stood, messages)
		}
		testapp.Eventually(t, "the other drains", func() bool { return other.Load() == messages })
		first.MustStop()
		second.MustStop()
		if n := paused.Load(); n != stood {
			t.Errorf("runs of the paused consumer: got %d, want the %d at the pause", n, stood)
		}
		// It outlives the processes.
		third := a.Start(testapp.Fast())
		a.Produce(order{ID: "new"})
		testapp.Eventually(t, "the other takes the new one", func() bool { return other.Load() == messages+1 })
		if n := paused.Load(); n != stood {
			t.Errorf("runs after a restart: got %d, want the %d at the pause", n, stood)
		}
		testapp.OK(t, client.Resume(ctx, db, "paused"))
		testapp.Eventually(t, "everything has run", func() bool { return paused.Load() == messages+1 && a.Empty() })
		third.MustStop()
	})
}

// TestResumeWakesThisProcess: a processor that polls once an hour begins at once.
func TestResumeWakesThisProcess(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var runs atomic.Int64
		a := testapp.New(t, db, testapp.Counting("c", &runs, bus.Aliases("former")))
		client, ctx := a.Admin(), t.Context()
		if err := client.Pause(ctx, db, "former", admin.PauseNote{}); err != nil { // by a former name
			t.Fatal(err)
		}
		config := testapp.Fast()
		config.PollInterval = time.Hour
		r := a.Start(config)
		testapp.Eventually(t, "it has looked once", func() bool { return r.Health().Ready })
		a.ProduceMany(3)
		testapp.Eventually(t, "the wake-up was answered", func() bool { return r.Stats().EmptyClaims > 0 })
		if runs.Load() > 0 {
			t.Errorf("runs while it is paused: got %d, want none", runs.Load())
		}
		testapp.OK(t, client.Resume(ctx, db, "c"))
		if err := client.Resume(ctx, db, "c"); !errors.Is(err, admin.ErrNotPaused) {
			t.Errorf("again: got error %v, want ErrNotPaused", err)
		}
		testapp.Eventually(t, "all run", func() bool { return runs.Load() == 3 && a.Empty() })
		r.MustStop()
	})
}
