package outbox_test

import (
	"context"
	"fmt"
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

// keyed runs a processor that has run message k, whose insert id an open transaction has
// met: its outcome cannot be written.
func keyed(t *testing.T, config outbox.ProcessorConfig, consumers ...bus.Consumer) (a *app, r *testapp.Running, tx bun.Tx,
	runs *atomic.Int64) {
	t.Helper()
	gate := make(chan struct{})
	runs = new(atomic.Int64)
	a = testapp.New(t, testdb.MariaDB(t), append(consumers,
		bus.Consume("keyed", func(context.Context, order) error { runs.Add(1); <-gate; return nil }))...)
	a.Produce(order{ID: "k"}, outbox.InsertID("k"))
	r = a.Start(config)
	testapp.Eventually(t, "run", func() bool { return runs.Load() == 1 })
	tx = testapp.Must[bun.Tx](t)(a.DB.BeginTx(context.WithoutCancel(t.Context()), nil))
	t.Cleanup(func() { _ = tx.Rollback() })
	if receipt, err := a.Producer.Produce(t.Context(), tx, order{ID: "k2"}, outbox.InsertID("k")); err != nil || receipt.Duplicates != 1 {
		t.Fatalf("produce: got %+v, error %v, want a duplicate", receipt, err)
	}
	close(gate)
	return a, r, tx, runs
}

// TestMariaDBLockedMessageDoesNotDelayOthers: while one message cannot be settled, others are
// claimed and settled, and leases are renewed; once it can be, it is.
func TestMariaDBLockedMessageDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	config := testapp.Fast()
	config.LeaseDuration, config.DefaultTimeout, config.DrainTimeout = 3*time.Second, time.Minute, time.Minute
	var slow, cancelled atomic.Int64
	a, r, tx, runs := keyed(t, config,
		bus.Consume("other", func(_ context.Context, f refund) error {
			if strings.HasSuffix(f.ID, "3") {
				return bus.Snooze(time.Millisecond * 100)
			}
			return nil
		}),
		bus.Consume("slow", func(ctx context.Context, _ slowRefund) error {
			slow.Add(1)
			select {
			case <-time.After(4 * time.Second): // longer than the lease
			case <-ctx.Done():
				cancelled.Add(1)
			}
			return nil
		}))
	for began, n := time.Now(), 0; time.Since(began) < 5*time.Second; n++ {
		a.Produce(refund{ID: fmt.Sprint(n, n%3)})
		if n%10 == 0 {
			a.Produce(slowRefund{})
		}
		testapp.Eventually(t, "other settled", func() bool {
			return a.Count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'other'") == 0
		})
	}
	if slow.Load() == 0 || cancelled.Load() > 0 {
		t.Errorf("beside a locked message: got %d of %d slow ones cancelled, want some and none", cancelled.Load(), slow.Load())
	}
	if left := a.Count("SELECT count(*) FROM consumer_messages WHERE insert_id = 'k'"); left != 1 {
		t.Errorf("the locked message: got %d, want 1", left)
	}
	testapp.OK(t, tx.Rollback())
	testapp.Eventually(t, "settled", func() bool { return a.Count("SELECT count(*) FROM consumer_messages WHERE insert_id = 'k'") == 0 })
	r.MustStop()
	if stats := r.Stats(); runs.Load() != 1 || stats.Fenced != 0 || cancelled.Load() > 0 {
		t.Errorf("in the end: got %d runs of the locked message, %d fenced, %d cancelled, want 1, 0, 0", runs.Load(), stats.Fenced,
			cancelled.Load())
	}
}

type slowRefund struct{}

func (slowRefund) PayloadType() string { return "slow" }

// TestMariaDBStopDoesNotWaitForALockedMessage: a stop ends in its time, says so, and
// gives the message back.
func TestMariaDBStopDoesNotWaitForALockedMessage(t *testing.T) {
	t.Parallel()
	config := testapp.Fast()
	config.DrainTimeout = time.Second
	a, r, tx, _ := keyed(t, config)
	if err := r.Wait(); err == nil || !strings.Contains(err.Error(), "keep their messages locked") {
		t.Errorf("stop beside a locked message: got error %v, want one that says so", err)
	}
	if left := a.Pending(); len(left) != 1 || left[0].Crashes != 0 || a.Count("SELECT count(*) FROM message_claims") != 0 {
		t.Errorf("after the stop: got %+v and %d claims, want the message unclaimed and no crash", left,
			a.Count("SELECT count(*) FROM message_claims"))
	}
	testapp.OK(t, tx.Rollback())
	b := a.Start(testapp.Fast())
	testapp.Eventually(t, "run again", a.Empty)
	b.MustStop()
}

// TestMariaDBFindsMessagesBehindALockedGap: a transaction can hold up a settle without a
// lock on the message: here the message cannot be put to its new place in the index.
func TestMariaDBFindsMessagesBehindALockedGap(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	var runs atomic.Int64
	a := testapp.New(t, testdb.MariaDB(t),
		bus.Consume("other", func(context.Context, refund) error { <-gate; return nil }),
		bus.Consume("zz", func(context.Context, order) error { runs.Add(1); <-gate; return bus.Snooze(time.Hour) }))
	a.Produce(order{})
	for range 5 {
		a.Produce(refund{})
	}
	config := testapp.Fast()
	config.Concurrency = 10
	r := a.Start(config)
	testapp.Eventually(t, "claimed", func() bool {
		return runs.Load() == 1 && a.Count("SELECT SUM(JSON_LENGTH(message_ids)) FROM message_claims") == 6
	})
	tx := testapp.Must[bun.Tx](t)(a.DB.BeginTx(context.WithoutCancel(t.Context()), nil))
	defer tx.Rollback() //nolint:errcheck // rolled back below
	_, err := tx.NewRaw("SELECT id FROM consumer_messages FORCE INDEX (consumer_messages_due) WHERE keyed = FALSE AND crashes = 0 AND consumer_type = 'zz' AND payload_type = 'order.placed' AND available_after > " +
		testapp.NowOf(a.DB) + " + 60000000 LOCK IN SHARE MODE").Exec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	close(gate)
	testapp.Eventually(t, "others settled", func() bool { return len(a.Pending()) == 1 })
	a.Produce(refund{})
	testapp.Eventually(t, "one more settled", func() bool { return len(a.Pending()) == 1 })
	testapp.OK(t, tx.Rollback())
	testapp.Eventually(t, "settled", func() bool { return a.Count("SELECT count(*) FROM message_claims") == 0 })
	r.MustStop()
	if stats := r.Stats(); runs.Load() != 1 || stats.Fenced != 0 {
		t.Errorf("in the end: got %d runs and %d fenced, want 1 and 0", runs.Load(), stats.Fenced)
	}
}
