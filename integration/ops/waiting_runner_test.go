package ops_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// refuseChanges makes the database refuse every change of operations, as one that is read only does.
func refuseChanges(a *testapp.App) {
	switch a.DB.Dialect().Name() {
	case dialect.PG:
		a.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'read only' USING ERRCODE = '25006'; END $$`)
		a.Exec(`CREATE TRIGGER refuse BEFORE UPDATE ON message_operations FOR EACH ROW EXECUTE FUNCTION refuse()`)
	case dialect.MySQL:
		a.Exec(`CREATE TRIGGER refuse BEFORE UPDATE ON message_operations FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'read only'`)
	default:
		a.Exec(`CREATE TRIGGER refuse BEFORE UPDATE ON message_operations BEGIN SELECT RAISE(ABORT, 'read only'); END`)
	}
}

// TestAMissingLeaseCausesNoBusyLoop: a runner that cannot lease a due operation tries again after a pause, however many
// places it has.
// Promise: outage-quiet
func TestAMissingLeaseCausesNoBusyLoop(t *testing.T) {
	t.Parallel()
	for _, locked := range []bool{false, true} {
		t.Run(map[bool]string{false: "refused", true: "locked"}[locked], func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				if locked && db.Dialect().Name() == dialect.SQLite {
					t.Skip("which has no row locks")
				}
				const most = 30 // a loop without a pause asks this often within some milliseconds
				a, _ := testapp.NewPoisoned(t, db, 1, testapp.Consumed("c"))
				var asked atomic.Int64
				busy := make(chan struct{})
				d := serviceOf(t, watched(db, func(query string) {
					if strings.Contains(query, "message_operations") && asked.Add(1) == most {
						close(busy)
					}
				}), a.Registry, func(c *ops.Config) { c.UndoWindow = -1 })
				s := operator.As(d, someone(ops.Administrator))
				o := planned(t, s, ops.Discard, ofConsumer("c"))
				_ = testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Reason: "why"}))
				ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
				tx := testapp.Must[bun.Tx](t)(db.BeginTx(ctx, nil))
				defer func() { _ = tx.Rollback() }()
				if locked {
					var ids []int64
					testapp.OK(t, tx.NewRaw("SELECT id FROM message_operations WHERE id = ? FOR UPDATE", o.ID).Scan(ctx, &ids))
				} else {
					testapp.OK(t, tx.Rollback())
					refuseChanges(a)
				}
				done := watchedRunner(t, ctx, d)
				defer func() { cancel(); <-done }()
				select {
				case <-busy:
					t.Errorf("got %d statements within 2 s, want a pause between them", asked.Load())
				case <-time.After(2 * time.Second):
				}
				if asked.Load() == 0 {
					t.Error("the runner has not asked for operations")
				}
				if locked {
					testapp.OK(t, tx.Rollback())
					awaitState(t, s, o.ID, ops.Done)
				}
			})
		})
	}
}

// TestEachStatementOfARunnerHasATimeLimit: a connection that never answers delays a runner by seconds, and no longer.
func TestEachStatementOfARunnerHasATimeLimit(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		var asked atomic.Int64
		p := newParking(t, db.WithQueryHook(testapp.QueryHook(func(ctx context.Context, query string) {
			if ctx.Value(marked{}) == nil || !strings.Contains(query, "message_operations") {
				return
			}
			asked.Add(1)
			if _, limited := ctx.Deadline(); !limited {
				t.Errorf("%s: want a time limit", query)
			}
		})))
		p.park("account-1", 1)
		p.bad = func(int) bool { return false }
		s := operator.As(p.service, someone(ops.Administrator))
		o := planned(t, s, ops.RetryParked, ops.Target{Projection: "balances"})
		_ = testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Reason: "mended"}))
		p.run(func() { awaitState(t, s, o.ID, ops.Done) })
		if asked.Load() == 0 {
			t.Error("the runner has not asked for operations")
		}
	})
}
