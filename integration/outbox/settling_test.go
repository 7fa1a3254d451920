package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// TestALockedMessageDoesNotDelayOthers: while an open transaction has one claimed message
// locked, others are settled, what vanished owners had is recovered, the database counts
// as well, and a stop writes all outcomes but that one.
// Promise: held-up
func TestALockedMessageDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) *bun.DB{"postgres": testdb.Postgres, "mariadb": testdb.MariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gate, begun := make(chan struct{}), make(chan struct{}, 1)
			var runs atomic.Int64
			a := testapp.New(t, open(t),
				bus.Consume("locked", func(context.Context, refund) error { begun <- struct{}{}; <-gate; return nil }),
				bus.Consume("quick", func(context.Context, order) error { runs.Add(1); return nil }))
			a.Produce(refund{ID: "1"})
			config := testapp.Fast()
			config.LeaseDuration, config.DrainTimeout = 3*time.Second, 3*time.Second // for 300 outcomes, on a busy machine
			r := a.Start(config)
			<-begun
			holder := testapp.Must[bun.Tx](t)(a.DB.BeginTx(context.WithoutCancel(t.Context()), nil))
			t.Cleanup(func() { _ = holder.Rollback() })
			if _, err := holder.NewRaw("SELECT id FROM consumer_messages WHERE id = ? FOR UPDATE", a.Pending()[0].ID).Exec(t.Context()); err != nil {
				t.Fatal(err)
			}
			close(gate)
			testapp.Eventually(t, "the outcome is put aside", func() bool { return r.Stats().Unsettled == 1 })
			a.Produce(order{ID: "0"})
			rounds, fastest := 0, time.Hour
			for began := time.Now(); rounds < 3 || time.Since(began) < 2*config.LeaseDuration; rounds++ {
				start := time.Now()
				a.ProduceMany(10)
				// A claim that comes a moment late may have them locked, too, until it finds out.
				testapp.Eventually(t, "the others are settled, and it alone is put aside", func() bool {
					return a.Count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'quick'") == 0 && r.Stats().Unsettled == 1
				})
				if h := r.Health(); !h.Ready || h.Err != nil {
					t.Fatalf("health: got %+v, want ready: the database answers", h)
				}
				fastest = min(fastest, time.Since(start))
			}
			if fastest >= 500*time.Millisecond { // a statement that waits for the lock does so for half a second
				t.Errorf("beside a locked message: the others were settled in %s at best, want less than half a second", fastest)
			}
			if int(runs.Load()) != 10*rounds+1 {
				t.Errorf("beside a locked message: got %d runs of %d messages, want one each", runs.Load(), 10*rounds+1)
			}
			a.ProduceMany(300)
			testapp.Eventually(t, "all have run", func() bool { return int(runs.Load()) == 10*rounds+301 })
			if err := r.Wait(); err == nil {
				t.Error("stop: got nil, want to be told that an outcome was not written")
			}
			if got := a.Count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'quick'"); got != 0 {
				t.Errorf("after the stop: got %d finished messages left, want 0", got)
			}
		})
	}
}

// TestAdminLocksNoClaimedMessage: what an application asks to cancel in a transaction of
// its own, which then takes its time, can be settled meanwhile.
// Promise: held-up
func TestAdminLocksNoClaimedMessage(t *testing.T) {
	t.Parallel()
	gate, begun := make(chan struct{}), make(chan struct{}, 1)
	a := testapp.New(t, testdb.Postgres(t), bus.Consume("c", func(context.Context, order) error { begun <- struct{}{}; <-gate; return nil }))
	a.Produce(order{ID: "1"})
	r := a.Start(testapp.Fast())
	<-begun
	id := int64(a.Count("SELECT id FROM consumer_messages"))
	tx := testapp.Must[bun.Tx](t)(a.DB.BeginTx(context.WithoutCancel(t.Context()), nil))
	t.Cleanup(func() { _ = tx.Rollback() })
	if result, err := a.Admin().Cancel(t.Context(), tx, id); err != nil || !slices.Equal(result.Running, []int64{id}) {
		t.Fatalf("cancel: got %+v, error %v, want it told to be running", result, err)
	}
	close(gate)
	testapp.Eventually(t, "settled beside the transaction", a.Empty)
	if got := r.Stats().Unsettled; got != 0 {
		t.Errorf("put aside: got %d, want 0", got)
	}
	r.MustStop()
}

// refusing makes the database refuse to remove messages, or some of them, on PostgreSQL.
func refusing(a *app, code, condition string) {
	a.Helper()
	a.Exec(fmt.Sprintf(`CREATE OR REPLACE FUNCTION refuse() RETURNS trigger AS $$ BEGIN IF %s THEN RAISE EXCEPTION 'refused' USING ERRCODE = '%s'; END IF; RETURN OLD; END $$ LANGUAGE plpgsql`,
		condition, code))
	// One round trip is one transaction. PostgreSQL 13 has no CREATE OR REPLACE TRIGGER.
	a.Exec("DROP TRIGGER IF EXISTS refuse ON consumer_messages; CREATE TRIGGER refuse BEFORE DELETE ON consumer_messages FOR EACH ROW EXECUTE FUNCTION refuse()")
}

// TestARefusedSettleDoesNotDelayOthers, and nobody else waits for it, whatever it is that
// the database does not like. Once it does, the outcome is written.
// Promise: held-up
func TestARefusedSettleDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	for what, code := range map[string]string{"a timeout": "57014", "a conflict": "40001", "an internal error": "XX000",
		"a refusal": "23514", "a privilege": "42501"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var runs atomic.Int64
			a := testapp.New(t, testdb.Postgres(t), bus.Consume("c", func(context.Context, order) error { runs.Add(1); return nil }))
			refusing(a, code, `OLD.payload LIKE '%"7"%'`)
			a.ProduceMany(200)
			r := a.Start(testapp.Fast())
			testapp.Eventually(t, "the others are settled", func() bool { return len(a.Pending()) == 1 && r.Stats().Unsettled == 1 })
			if h := r.Health(); !h.Ready || h.Err != nil {
				t.Errorf("health: got %+v, want ready", h)
			}
			refusing(a, code, "FALSE")
			testapp.Eventually(t, "it is settled", a.Empty)
			r.MustStop()
			if got := runs.Load(); got != 200 {
				t.Errorf("runs: got %d, want 200", got)
			}
		})
	}
}

// TestWhatNothingCanBeSettledOfWaits: when a single outcome fails like all, they are not
// tried one by one, and written when that is over.
func TestWhatNothingCanBeSettledOfWaits(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	a := testapp.New(t, testdb.Postgres(t), bus.Consume("c", func(context.Context, order) error { runs.Add(1); return nil }))
	refusing(a, "XX000", "TRUE")
	a.ProduceMany(200)
	var sent queries
	watcher := *a
	a.DB = a.DB.WithQueryHook(sent.hook())
	r := a.Start(testapp.Fast())
	testapp.Eventually(t, "all are put aside", func() bool { return r.Stats().Unsettled == 200 })
	if n := sent.count("DELETE FROM \"consumer_messages\""); n > 40 {
		t.Errorf("statements: got %d, want a few", n)
	}
	refusing(&watcher, "XX000", "FALSE")
	testapp.Eventually(t, "all are settled", watcher.Empty)
	r.MustStop()
	if got := runs.Load(); got != 200 {
		t.Errorf("runs: got %d, want 200", got)
	}
}
