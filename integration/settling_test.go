package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// TestALockedMessageHoldsUpNobody: while an open transaction has one claimed message
// locked, others are settled, what vanished owners had is recovered, the database counts
// as well, and a stop writes all outcomes but that one.
func TestALockedMessageHoldsUpNobody(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) *bun.DB{"postgres": testdb.Postgres, "mariadb": testdb.MariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gate, begun := make(chan struct{}), make(chan struct{}, 1)
			var runs atomic.Int64
			a := newApp(t, open(t),
				bus.Consume("locked", func(context.Context, refund) error { begun <- struct{}{}; <-gate; return nil }),
				bus.Consume("quick", func(context.Context, order) error { runs.Add(1); return nil }))
			a.produce(refund{ID: "1"})
			config := fast()
			config.LeaseDuration, config.DrainTimeout = 3*time.Second, time.Second
			r := a.start(config)
			<-begun
			holder := must[bun.Tx](t)(a.db.BeginTx(context.WithoutCancel(t.Context()), nil))
			t.Cleanup(func() { _ = holder.Rollback() })
			if _, err := holder.NewRaw("SELECT id FROM consumer_messages WHERE id = ? FOR UPDATE", a.pending()[0].ID).Exec(t.Context()); err != nil {
				t.Fatal(err)
			}
			close(gate)
			eventually(t, "the outcome is put aside", func() bool { return r.Stats().Unsettled == 1 })
			a.produce(order{ID: "0"})
			worst, rounds := time.Duration(0), 0
			for began := time.Now(); time.Since(began) < 6*time.Second; rounds++ {
				at := time.Now()
				a.produceMany(10)
				eventually(t, "the others are settled", func() bool {
					return a.count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'quick'") == 0
				})
				worst = max(worst, time.Since(at))
				if h := r.Health(); !h.Ready || h.Err != nil {
					t.Fatalf("health: got %+v, want ready: the database answers", h)
				}
			}
			if worst > 4*time.Second || int(runs.Load()) != 10*rounds+1 {
				t.Errorf("beside a locked message: the slowest round took %s, %d runs of %d messages, want a moment and one each", worst, runs.Load(), 10*rounds+1)
			}
			a.produceMany(300)
			eventually(t, "all have run", func() bool { return int(runs.Load()) == 10*rounds+301 })
			if err := r.wait(); err == nil {
				t.Error("stop: got nil, want to be told that an outcome was not written")
			}
			if got := a.count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'quick'"); got != 0 {
				t.Errorf("after the stop: got %d finished messages left, want 0", got)
			}
		})
	}
}

// TestAdminLocksNoClaimedMessage: what an application asks to cancel in a transaction of
// its own, which then takes its time, can be settled meanwhile.
func TestAdminLocksNoClaimedMessage(t *testing.T) {
	t.Parallel()
	gate, begun := make(chan struct{}), make(chan struct{}, 1)
	a := newApp(t, testdb.Postgres(t), bus.Consume("c", func(context.Context, order) error { begun <- struct{}{}; <-gate; return nil }))
	a.produce(order{ID: "1"})
	r := a.start(fast())
	<-begun
	id := int64(a.count("SELECT id FROM consumer_messages"))
	tx := must[bun.Tx](t)(a.db.BeginTx(context.WithoutCancel(t.Context()), nil))
	t.Cleanup(func() { _ = tx.Rollback() })
	if result, err := a.admin().Cancel(t.Context(), tx, id); err != nil || !slices.Equal(result.Running, []int64{id}) {
		t.Fatalf("cancel: got %+v, error %v, want it told to be running", result, err)
	}
	close(gate)
	poll(t, "settled beside the transaction", 5*time.Second, time.Millisecond, a.empty)
	if got := r.Stats().Unsettled; got != 0 {
		t.Errorf("put aside: got %d, want 0", got)
	}
	r.mustStop()
}

// refusing makes the database refuse to remove messages, or some of them, on PostgreSQL.
func (a *app) refusing(code, condition string) {
	a.Helper()
	a.exec(fmt.Sprintf(`CREATE OR REPLACE FUNCTION refuse() RETURNS trigger AS $$ BEGIN IF %s THEN RAISE EXCEPTION 'refused' USING ERRCODE = '%s'; END IF; RETURN OLD; END $$ LANGUAGE plpgsql`,
		condition, code))
	a.exec("CREATE OR REPLACE TRIGGER refuse BEFORE DELETE ON consumer_messages FOR EACH ROW EXECUTE FUNCTION refuse()")
}

// TestWhatCannotBeSettledIsPutAside, and nobody else waits for it, whatever it is that
// the database does not like. Once it does, the outcome is written.
func TestWhatCannotBeSettledIsPutAside(t *testing.T) {
	t.Parallel()
	for what, code := range map[string]string{"a timeout": "57014", "a conflict": "40001", "an internal error": "XX000", "a refusal": "23514", "a privilege": "42501"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var runs atomic.Int64
			a := newApp(t, testdb.Postgres(t), bus.Consume("c", func(context.Context, order) error { runs.Add(1); return nil }))
			a.refusing(code, `OLD.payload LIKE '%"7"%'`)
			a.produceMany(200)
			r := a.start(fast())
			poll(t, "the others are settled", 20*time.Second, time.Millisecond, func() bool { return len(a.pending()) == 1 && r.Stats().Unsettled == 1 })
			if h := r.Health(); !h.Ready || h.Err != nil {
				t.Errorf("health: got %+v, want ready", h)
			}
			a.refusing(code, "FALSE")
			poll(t, "it is settled", 20*time.Second, time.Millisecond, a.empty)
			r.mustStop()
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
	a := newApp(t, testdb.Postgres(t), bus.Consume("c", func(context.Context, order) error { runs.Add(1); return nil }))
	a.refusing("XX000", "TRUE")
	a.produceMany(200)
	sent := new(sentStatements)
	watcher := *a
	a.db = a.db.WithQueryHook(sent)
	r := a.start(fast())
	eventually(t, "all are put aside", func() bool { return r.Stats().Unsettled == 200 })
	if n := strings.Count(sent.take(), "DELETE FROM \"consumer_messages\""); n > 40 {
		t.Errorf("statements: got %d, want a few", n)
	}
	watcher.refusing("XX000", "FALSE")
	eventually(t, "all are settled", watcher.empty)
	r.mustStop()
	if got := runs.Load(); got != 200 {
		t.Errorf("runs: got %d, want 200", got)
	}
}

// TestPoisoningFindsAFreeID: when somebody has let the ids of messages begin anew, one
// may be poisoned already.
func TestPoisoningFindsAFreeID(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db, bus.Consume("c", func(context.Context, order) error { return bus.Permanent(fmt.Errorf("no")) }))
		s := must[*store.Store](t)(store.For(db.Dialect().Name(), bus.Tables{}))
		overriding := ""
		if db.Dialect().Name() == dialect.PG {
			overriding = " OVERRIDING SYSTEM VALUE"
		}
		again := func(n int) {
			a.exec("INSERT INTO consumer_messages (id, message_id, consumer_type, payload_type, payload, created_at, available_after, attempts, crashes)" + overriding + " SELECT " +
				"id, message_id, consumer_type, payload_type, payload, created_at, available_after, 0, " + fmt.Sprint(n) + " FROM poisoned_messages")
		}
		a.produceMany(3)
		r := a.start(fast())
		eventually(t, "poisoned", func() bool { return len(a.poisoned()) == 3 && a.empty() })
		again(0)
		eventually(t, "poisoned again", func() bool { return len(a.poisoned()) == 6 && a.empty() })
		r.mustStop()
		again(2)
		for _, row := range a.pending() {
			c, err := s.Claim(t.Context(), db, store.ClaimRequest{Owner: "gone", Lease: time.Millisecond, Select: store.Killers, Solo: true, Limit: 1,
				Wants: []store.Want{{Consumer: row.ConsumerType, Payload: row.PayloadType}}, MaxBytes: 1 << 20})
			if err != nil || len(c.Messages) != 1 {
				t.Fatalf("claim: got %d messages, error %v, want 1", len(c.Messages), err)
			}
		}
		eventually(t, "recovered as poisoned", func() bool {
			if _, err := s.Recover(t.Context(), db, 3); err != nil {
				t.Fatalf("recover: %v", err)
			}
			return a.empty()
		})
		if got := len(a.poisoned()); got != 12 {
			t.Errorf("poisoned: got %d, want 12", got)
		}
	})
}
