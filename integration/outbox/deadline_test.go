package outbox_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

func TestExpiredMessagesAreNotRun(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var runs atomic.Int64
		var lines testapp.Lines
		a := testapp.New(t, db, testapp.Counting("c", &runs))
		past, future := time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
		a.Produce(order{ID: "1"}, outbox.DeliverBy(past, bus.Discarded))
		a.Produce(order{ID: "2"}, outbox.DeliverBy(past, bus.Poisoned))
		a.Produce(order{ID: "3"}, outbox.DeliverBy(future, bus.Discarded))
		explained := testapp.Must[admin.Explanation](t)(a.Admin().Explain(a.Context(), db, a.Pending()[0].ID))
		if explained.Reason != admin.Expired || !strings.Contains(explained.Text, "discarded") || explained.Message.Headers != nil {
			t.Errorf("Explain: got %+v, want that it is late and will be discarded", explained)
		}
		config := testapp.Fast()
		config.Logger = lines.Logger()
		r := a.Start(config)
		testapp.Eventually(t, "nothing waits", a.Empty)
		r.MustStop()
		poisoned := a.Poisoned()
		if runs.Load() != 1 || len(poisoned) != 1 || poisoned[0].Reason != "deadline passed" {
			t.Fatalf("got %d runs and %+v poisoned, want one each", runs.Load(), poisoned)
		}
		explained = testapp.Must[admin.Explanation](t)(a.Admin().Explain(a.Context(), db, poisoned[0].ID))
		if !strings.Contains(explained.Text, ", because its deadline had passed.") {
			t.Errorf("Explain: got %q, want that its deadline had passed", explained.Text)
		}
		if !strings.Contains(lines.String(), bus.ErrExpired.Error()) {
			t.Errorf("log: got %s, want it to say %q", lines.String(), bus.ErrExpired)
		}

		// Whoever requeues it wants it to run.
		store := testapp.Must[*poison.Store](t)(poison.NewStore(a.Registry))
		testapp.OK(t, testapp.Second(store.Requeue(a.Context(), db, poisoned[0].ID)))
		if row := a.Pending()[0]; strings.Contains(row.Headers, `"asyncmonolith-deliver-by"`) {
			t.Fatalf("requeued: got headers %s, want the deadline lifted", row.Headers)
		}
		r = a.Start(testapp.Fast())
		testapp.Eventually(t, "it runs", func() bool { return runs.Load() == 2 && a.Empty() })
		r.MustStop()
	})
}

// Promise: deadline
func TestARetryAfterItsDeadlineDoesNotRun(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		runs := 0
		a := newApp(bus.Consume("c", func(context.Context, order) error { runs++; return errors.New("no") }, bus.AttemptDelay(time.Hour)))
		a.ProduceAt(ctx, order{ID: "1"}, outbox.DeliverBy(time.Now().Add(time.Minute), bus.Poisoned))
		r := a.StartWith(ctx, outbox.ProcessorConfig{})
		testapp.Sooner(t, "it is poisoned", func() bool { return len(a.Poisoned()) == 1 })
		r.MustStop()
		if runs != 1 {
			t.Errorf("got %d runs, want one, before the deadline", runs)
		}
	})
}

func TestDeadlinesThatCannotBeKeptAreRefused(t *testing.T) {
	t.Parallel()
	a := testapp.New(t, testdb.SQLite(t), testapp.Consumed("c"))
	now := time.Now()
	for name, options := range map[string][]outbox.Option{
		"no instant":     {outbox.DeliverBy(time.Time{}, bus.Discarded)},
		"year 10000":     {outbox.DeliverBy(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), bus.Discarded)},
		"other outcome":  {outbox.DeliverBy(now, bus.Done)},
		"due afterwards": {outbox.DeliverBy(now, bus.Discarded), outbox.AvailableAt(now.Add(time.Second))},
	} {
		if _, err := a.Producer.Produce(a.Context(), a.DB, order{}, options...); !errors.Is(err, bus.ErrInvalidOption) {
			t.Errorf("%s: got %v, want %v", name, err, bus.ErrInvalidOption)
		}
	}
}

// TestAnExpiredMessageIsReportedOnceItIsPoisoned, and not each time it is given back behind one of its
// key that is not done.
func TestAnExpiredMessageIsReportedOnceItIsPoisoned(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var told, runs atomic.Int64
		a := newApp(bus.ConsumeBatch("c", func(context.Context, []step) error {
			if runs.Add(1) > 5 {
				return nil
			}
			if n := told.Load(); n > 0 {
				t.Errorf("run %d of the first: the hook was told of %d poisoned behind it, want none yet", runs.Load(), n)
			}
			return bus.Snooze(time.Second)
		}, bus.Ordered(bus.BlockKey)))
		a.ProduceAt(ctx, step{"a", 1})
		a.ProduceAt(ctx, step{"a", 2}, outbox.DeliverBy(time.Now().Add(-time.Second), bus.Poisoned))
		config := outbox.ProcessorConfig{Concurrency: 1}
		config.Middleware = middleware.Default(middleware.Options{OnPoison: func(context.Context, *bus.Message, string, error) { told.Add(1) }})
		r := a.StartWith(ctx, config)
		testapp.Sooner(t, "it is poisoned", func() bool { return len(a.Poisoned()) == 1 })
		r.MustStop()
		if told.Load() != 1 {
			t.Errorf("the hook was told %d times, want once", told.Load())
		}
	})
}

// TestNoMemberOfAGroupStartsAfterItsDeadline: those that share a transaction, or a batch, wait for each other before they
// start.
// Promise: deadline
func TestNoMemberOfAGroupStartsAfterItsDeadline(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		var runs atomic.Int64
		var by time.Time
		a := testapp.New(t, db, outbox.ConsumeTx("c", func(context.Context, bun.Tx, order) error {
			// A busy machine may pause between the last look at the clock and the function. Who waits for others of
			// the group is 400 ms late.
			if late := time.Since(by); late > 200*time.Millisecond {
				t.Errorf("a run began %s after its deadline", late)
			}
			runs.Add(1)
			<-time.After(400 * time.Millisecond)
			return nil
		}, outbox.GroupCommit(20), bus.Timeout(8*time.Second)))
		config := testapp.Fast()
		config.TxConcurrency = 1
		r := a.Start(config)
		testapp.Eventually(t, "it is ready", func() bool { return r.Health().Ready })
		by = time.Now().Add(2500 * time.Millisecond)
		items := make([]outbox.Item, 12)
		for i := range items {
			items[i] = outbox.Item{Payload: order{ID: "1"}, Options: []outbox.Option{outbox.DeliverBy(by, bus.Discarded)}}
		}
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, items...))
		testapp.Eventually(t, "all are gone", a.Empty)
		r.MustStop()
		if n := runs.Load(); n == 0 || n > 8 {
			t.Errorf("got %d runs, want some that began in time, and not all", n)
		}
	})
}

// A batch does not wait to be filled until its messages have expired.
func TestABatchWaitsForNoneBeyondADeadline(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var ran atomic.Int64
		a := newApp(bus.ConsumeBatch("c", func(_ context.Context, orders []order) error { ran.Add(int64(len(orders))); return nil },
			bus.BatchSize(10), bus.BatchWait(time.Second)),
			outbox.ConsumeBatchTx("d", func(context.Context, bun.Tx, []refund) error { return nil }))
		r := a.StartWith(ctx, outbox.ProcessorConfig{})
		<-time.After(3 * time.Second)
		a.ProduceAt(ctx, order{ID: "1"}, outbox.DeliverBy(time.Now().Add(600*time.Millisecond), bus.Poisoned))
		testapp.Sooner(t, "done", a.Empty)
		if ran.Load() != 1 {
			t.Errorf("it has expired in an idle process, with %d poisoned", len(a.Poisoned()))
		}
		r.MustStop()
	})
}
