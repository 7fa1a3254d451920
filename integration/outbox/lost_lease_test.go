package outbox_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

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
