package outbox_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

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

// TestALimitHoldsOverAllProcesses: three processors together run no more than it says, of
// consumers that share it, but as many as that.
func TestALimitHoldsOverAllProcesses(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var limited, free gauge
		consumers := []bus.Consumer{
			bus.Consume("one", limited.work(20*time.Millisecond), bus.LimitShared("both", 3)),
			bus.Consume("two", limited.workRefund(20*time.Millisecond), bus.LimitShared("both", 3)),
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
			t.Errorf("got %d at once in %d runs, and %d of the one without a limit, want 3 in 120, and more", limited.most.Load(), limited.runs.Load(), free.most.Load())
		}
		if n := a.Count("SELECT count(*) FROM message_slots WHERE owner <> ''"); n != 0 {
			t.Errorf("got %d slots that somebody has at the end, want none", n)
		}
	})
}

// TestSlotsOfTheDeadAreFreeAgain with their lease, and others wait no longer.
func TestSlotsOfTheDeadAreFreeAgain(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var g gauge
		a := testapp.New(t, db, bus.Consume("c", g.work(0), bus.Limit(1)))
		a.Exec("INSERT INTO message_slots (name, n, owner, leased_until) SELECT 'c', 1, 'dead', " + testapp.In(db, 2*time.Second))
		a.Produce(order{ID: "1"})
		id := a.Pending()[0].ID
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "the limit is known as the reason", func() bool {
			e := testapp.Must[outbox.Explanation](t)(a.Admin().Explain(a.Context(), db, id))
			return e.Reason == outbox.AtLimit && strings.Contains(e.Text, "dead")
		})
		began := time.Now()
		testapp.Eventually(t, "it ran", a.Empty)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("got it after %s, want it once the lease of 2s is over", took)
		}
		testapp.Eventually(t, "the slot is given back", func() bool {
			return a.Count("SELECT count(*) FROM message_slots WHERE owner <> ''") == 0
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
		}, bus.Limit(1), bus.Timeout(time.Minute)))
		a.Produce(order{ID: "1"})
		config := testapp.Fast()
		config.LeaseDuration = 2 * time.Second
		r := a.Start(config)
		testapp.Eventually(t, "it runs", func() bool { return first.Load() == 1 })
		a.Exec("UPDATE message_slots SET owner = 'other', leased_until = " + testapp.In(db, time.Second))
		testapp.Eventually(t, "it is cancelled, and runs again", func() bool { return lost.Load() && a.Empty() })
		r.MustStop()
		if p := a.Poisoned(); len(p) > 0 || first.Load() != 2 {
			t.Errorf("got %d runs and %+v poisoned, want one more that counts nothing", first.Load(), p)
		}
	})
}

func TestLimitsAreChecked(t *testing.T) {
	t.Parallel()
	for want, consumers := range map[string][]bus.Consumer{
		"Limit 0: more than 0":            {testapp.Consumed("c", bus.Limit(0))},
		"Limit 1001: 1 to 1000":           {testapp.Consumed("c", bus.Limit(1001))},
		`LimitShared: the name ""`:        {testapp.Consumed("c", bus.LimitShared("", 2))},
		`the limit "s" is 3, and 2 for c`: {testapp.Consumed("b", bus.LimitShared("s", 2)), testapp.Consumed("c", bus.LimitShared("s", 3))},
	} {
		registry, err := bus.NewRegistry(consumers...)
		if err == nil {
			_, err = outbox.NewProcessor(testdb.SQLite(t), registry, outbox.ProcessorConfig{})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}
