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
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

var errAway = errors.New("the other side is away")

// TestAClosedGateWritesNothing: while the other side is away no message costs an attempt or
// is moved, others go on, and once a probe succeeds everything runs.
func TestAClosedGateWritesNothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var gate outbox.Gate
		var away atomic.Bool
		var tries, others atomic.Int64
		away.Store(true)
		a := testapp.New(t, db, testapp.Counting("other", &others), bus.Consume("gated", func(context.Context, order) error {
			if tries.Add(1); away.Load() {
				return gate.Close(errAway)
			}
			return nil
		}, outbox.Gated(&gate), bus.MaxAttempts(1)))
		a.ProduceMany(200)
		before := a.Pending()
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "others go on", func() bool { return others.Load() == 200 })
		testapp.Eventually(t, "a probe has failed", func() bool {
			since, _, closed := gate.Closed()
			return closed && time.Since(since) > 1500*time.Millisecond
		})
		failed := tries.Load()
		if health := r.Health(); len(health.Closed) != 1 || health.Closed[0].Consumer != "gated" || health.Closed[0].Reason != errAway.Error() || !health.Ready {
			t.Errorf("Health: got %+v, want the gate", health)
		}
		testapp.Eventually(t, "all was given back", func() bool { return a.Count("SELECT count(*) FROM message_claims") == 0 })
		after := a.Pending()
		if len(after) != 200 {
			t.Fatalf("got %d that wait, want 200", len(after))
		}
		unchanged := make(map[int64]testapp.Row)
		for _, row := range before {
			unchanged[row.ID] = row
		}
		for _, row := range after {
			if unchanged[row.ID] != row {
				t.Errorf("got %+v, want it untouched: %+v", row, unchanged[row.ID])
			}
		}
		explained := testapp.Must[outbox.Explanation](t)(a.Admin().Explain(a.Context(), db, after[0].ID))
		if explained.Reason != outbox.GateClosed {
			t.Errorf("Explain: got %+v, want %s", explained, outbox.GateClosed)
		}
		away.Store(false)
		testapp.Eventually(t, "a probe opens the gate", a.Empty)
		r.MustStop()
		if n := tries.Load(); n != failed+200 && n != failed+201 || failed > 100 {
			t.Errorf("got %d runs, %d of them while it was away: want few of those, and one for each message", n, failed)
		}
	})
}

// TestProbesBecomeRare, and whoever opens the gate need not wait for one.
func TestProbesBecomeRare(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var gate outbox.Gate
		var at testapp.Moments
		var away atomic.Bool
		away.Store(true)
		a := newApp(bus.Consume("gated", func(context.Context, order) error {
			if at.Add(); away.Load() {
				return gate.Close(errAway)
			}
			return nil
		}, outbox.Gated(&gate)))
		for range 3 {
			a.ProduceAt(ctx, order{ID: "1"})
		}
		r := a.StartWith(ctx, outbox.ProcessorConfig{Concurrency: 1})
		testapp.Sooner(t, "seven probes", func() bool { return at.Len() == 8 })
		for i, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			if got := at.At(i + 1).Sub(at.At(i)).Round(time.Second); got != want*time.Second {
				t.Errorf("probe %d: got it after %s, want %s", i, got, want*time.Second)
			}
		}
		away.Store(false)
		opened := time.Now()
		gate.Open()
		testapp.Sooner(t, "all are done", a.Empty)
		if took := time.Since(opened); took > time.Second {
			t.Errorf("after Open: got it done after %s, want at once", took)
		}
		r.MustStop()
	})
}
