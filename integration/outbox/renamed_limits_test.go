package outbox_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// acrossARename is a rolling deploy in which the consumer "older" has become "new".
func acrossARename(
	t *testing.T, db *bun.DB, consume func(context.Context, order) error, option bus.ConsumerOption,
) (before, after *app) {
	t.Helper()
	return testapp.New(t, db, bus.Consume("older", consume, option)),
		testapp.New(t, db, bus.Consume("new", consume, option, bus.Aliases("old", "older")))
}

// TestALimitHoldsOverARename, and is shown under the name that each program has.
func TestALimitHoldsOverARename(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var at gauge
		a, b := acrossARename(t, db, at.work(20*time.Millisecond), bus.GlobalConcurrency(1))
		a.ProduceMany(40)
		b.ProduceMany(10)
		one, two := a.Start(testapp.Fast()), b.Start(testapp.Fast())
		testapp.Eventually(t, "it is shown", func() bool { _, ok := two.Stats().Limits["new"]; return ok })
		testapp.Eventually(t, "all ran", a.Empty)
		one.MustStop()
		two.MustStop()
		if at.most.Load() != 1 || at.runs.Load() != 50 {
			t.Errorf("got %d runs, %d at once, want 50, one at a time", at.runs.Load(), at.most.Load())
		}
	})
}

// TestExplainShowsALimitByThePresentName, though it is stored under the oldest.
func TestExplainShowsALimitByThePresentName(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		_, b := acrossARename(t, db, func(context.Context, order) error { return nil }, bus.GlobalConcurrency(1))
		b.ProduceMany(1)
		b.Exec("INSERT INTO message_slots (name, n, owner, leased_until) SELECT 'older', 1, 'other', " + testapp.In(db, time.Minute))
		e := testapp.Must[admin.Explanation](t)(b.Admin().Explain(t.Context(), db, b.Pending()[0].ID))
		if e.Reason != admin.Limited || !strings.Contains(e.Text, `at the limit "new" of 1, which is taken by owner other (1)`) {
			t.Errorf("Explain: got %s %s", e.Reason, e.Text)
		}
	})
}

func TestARateHoldsOverARename(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) { rateOverARename(t, db, bus.RateLimit(10, time.Second, 1)) })
}

func TestAKeyRateHoldsOverARename(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) { // MariaDB has no key rates
		rateOverARename(t, db, bus.KeyRateLimit(10, time.Second, 1))
	})
}

// rateOverARename has both programs run messages of one key at 10/s together.
func rateOverARename(t *testing.T, db *bun.DB, rate bus.ConsumerOption) {
	t.Helper()
	const n = 16
	var at testapp.Moments
	a, b := acrossARename(t, db, func(context.Context, order) error { at.Add(); return nil }, rate)
	for i := range n {
		of := []*app{a, b}[i%2]
		of.Produce(order{ID: "1"}, outbox.OrderingKey("k"))
	}
	one, two := a.Start(testapp.Fast()), b.Start(testapp.Fast())
	testapp.Eventually(t, "all ran", a.Empty)
	one.MustStop()
	two.MustStop()
	if took := at.At(n - 1).Sub(at.At(0)); took < (n-2)*100*time.Millisecond {
		t.Errorf("%d started in %s, want 10 a second", n, took)
	}
}
