package ops_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

type marked struct{}

// watched is the database with fn called before each statement of a runner whose context is marked.
func watched(db *bun.DB, fn func(query string)) *bun.DB {
	return db.WithQueryHook(testapp.QueryHook(func(ctx context.Context, query string) {
		if ctx.Value(marked{}) != nil {
			fn(query)
		}
	}))
}

// watchedRunner carries out operations until ctx ends.
func watchedRunner(t *testing.T, ctx context.Context, d *ops.Service) (done chan struct{}) {
	t.Helper()
	r := testapp.Must[*ops.Runner](t)(ops.NewRunner(d, nil))
	done = make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Run(context.WithValue(ctx, marked{}, true)); err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	return done
}

// killSessions ends all sessions of the database but one, where there are sessions.
func killSessions(t *testing.T, db *bun.DB) {
	t.Helper()
	if isMariaDB(db) {
		var ids []int64
		_ = db.NewRaw("SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()").Scan(context.Background(), &ids)
		for _, id := range ids {
			_, _ = db.ExecContext(context.Background(), fmt.Sprintf("KILL CONNECTION %d", id))
		}
		return
	}
	_, _ = db.ExecContext(context.Background(),
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
}

// TestRunnersEndAtEachStatement: a runner that is stopped, or loses its sessions, before any of its statements has
// done each message once, and counted it, as far as it came; the next one goes on.
func TestRunnersEndAtEachStatement(t *testing.T) {
	t.Parallel()
	for _, kill := range []bool{false, true} {
		t.Run(map[bool]string{false: "stopped", true: "killed"}[kill], func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				if kill && db.Dialect().Name() == dialect.SQLite {
					t.Skip("which has no sessions")
				}
				const n = 600
				a, _ := testapp.NewPoisoned(t, db, n, testapp.Consumed("c"))
				var left atomic.Int64
				var end atomic.Value
				hooked := watched(db, func(string) {
					if left.Add(-1) == 0 {
						if kill {
							killSessions(t, db)
						}
						end.Load().(context.CancelFunc)()
					}
				})
				d := serviceOf(t, hooked, a.Registry, func(c *ops.Config) { c.UndoWindow = -1 })
				s := operator.As(d, someone(ops.Administrator))
				o := planned(t, s, ops.Requeue, ofConsumer("c"))
				_ = testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID,
					ops.StartOptions{Rate: 50, Canary: -1, Reason: "all of them"}))
				for k := int64(1); k <= 25; k++ { // which is some steps
					ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
					end.Store(cancel)
					left.Store(k)
					select {
					case <-watchedRunner(t, ctx, d):
					case <-time.After(time.Minute):
						t.Fatalf("statement %d: the runner has not returned", k)
					}
					cancel()
					var o ops.Operation
					testapp.Eventually(t, "it can be asked", func() (ok bool) {
						var err error
						o, err = s.Operations().Get(t.Context(), 1)
						return err == nil
					})
					pending := a.Count("SELECT count(*) FROM consumer_messages")
					distinct := a.Count("SELECT count(DISTINCT message_id) FROM (SELECT message_id FROM consumer_messages UNION ALL SELECT message_id FROM poisoned_messages) x")
					if poisoned := a.Count("SELECT count(*) FROM poisoned_messages"); pending+poisoned != n || distinct != n ||
						int64(pending) != o.Changed {
						t.Fatalf("statement %d: got %d pending and %d poisoned, %d different, %d counted, want %d in all", k, pending, poisoned,
							distinct, o.Changed, n)
					}
					a.Exec("UPDATE message_operations SET leased_until = " + testapp.In(db, -time.Second) + " WHERE id = 1 AND leased_by IS NOT NULL")
				}
				if got := a.Count("SELECT changed FROM message_operations WHERE id = 1"); got == 0 {
					t.Error("nothing was done")
				}
			})
		})
	}
}

// TestAnOperationThatCannotBeLeased holds up no later one.
func TestAnOperationThatCannotBeLeased(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	a, _ := testapp.NewPoisoned(t, db, 2, testapp.Consumed("c"))
	a.ProduceMany(3)
	d := serviceOf(t, db, a.Registry, func(c *ops.Config) { c.UndoWindow = -1 })
	s := operator.As(d, someone(ops.Administrator))
	refused := planned(t, s, ops.Requeue, ofConsumer("c"))
	other := planned(t, s, ops.Cancel, ops.Target{Pending: &admin.Filter{Consumer: "c"}})
	for _, o := range []ops.Operation{refused, other} {
		_ = testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Reason: "why"}))
	}
	a.Exec(fmt.Sprintf(`CREATE TRIGGER refuse BEFORE UPDATE ON message_operations WHEN NEW.id = %d
BEGIN SELECT RAISE(ABORT, 'refused'); END`, refused.ID))
	stop := runner(t, d)
	defer stop()
	awaitState(t, s, other.ID, ops.Done)
}

// TestStopWaitsForTheStep: once a stop has returned nothing changes any more, however far a step was.
func TestStopWaitsForTheStep(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		a.ProduceMany(60)
		reached, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		hooked := watched(db, func(query string) {
			if strings.Contains(query, "DELETE") {
				once.Do(func() { close(reached); <-goOn })
			}
		})
		d := serviceOf(t, hooked, a.Registry, func(c *ops.Config) { c.UndoWindow = -1 })
		s := operator.As(d, someone(ops.Administrator))
		o := planned(t, s, ops.Cancel, ops.Target{Pending: &admin.Filter{Consumer: "c"}})
		_ = testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Rate: 50, Reason: "why"}))
		ctx, cancel := context.WithCancel(t.Context())
		done := watchedRunner(t, ctx, d)
		defer func() { cancel(); <-done }()
		<-reached
		stopped := make(chan ops.Operation)
		go func() {
			o, err := s.Operations().Stop(context.WithoutCancel(t.Context()), "enough", o.ID)
			if err != nil {
				t.Errorf("stop: %v", err)
			}
			stopped <- o
		}()
		select {
		case o := <-stopped:
			t.Fatalf("the stop has not waited for the step: %+v", o)
		case <-time.After(300 * time.Millisecond):
		}
		close(goOn)
		o = <-stopped
		left := len(a.Pending())
		<-time.After(3 * 200 * time.Millisecond) // some ticks
		if now := len(a.Pending()); o.State != ops.Stopped || now != left || int64(60-now) != o.Changed || o.Changed == 0 {
			t.Errorf("after the stop: got %d, then %d left, and %+v", left, now, o)
		}
	})
}

// TestAStepUnderWayIsDone: who stops a runner in the midst of a step waits for it, and it counts.
func TestAStepUnderWayIsDone(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		a.ProduceMany(60)
		ctx, cancel := context.WithCancel(t.Context())
		hooked := watched(db, func(query string) {
			if strings.Contains(query, "DELETE") {
				cancel()
			}
		})
		d := serviceOf(t, hooked, a.Registry, func(c *ops.Config) { c.UndoWindow = -1 })
		s := operator.As(d, someone(ops.Administrator))
		o := planned(t, s, ops.Cancel, ops.Target{Pending: &admin.Filter{Consumer: "c"}})
		_ = testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Rate: 50, Reason: "why"}))
		<-watchedRunner(t, ctx, d)
		o = operationOf(t, s, o.ID)
		if left := len(a.Pending()); o.Changed == 0 || int64(60-left) != o.Changed ||
			a.Count("SELECT count(*) FROM message_operations WHERE leased_by IS NOT NULL") != 0 {
			t.Errorf("got %+v with %d left, want the step done, and the operation given back", o, left)
		}
	})
}

// TestRunnersDoNotWaitForEachOther: who has one operation locked holds up no other, and neither do those whose canaries are
// waited for.
func TestRunnersDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 5, testapp.Consumed("c0"), testapp.Consumed("c1"), testapp.Consumed("c2"),
			testapp.Consumed("c3"), testapp.Consumed("c4"), testapp.Consumed("c5"))
		d := serviceOf(t, db, a.Registry, func(c *ops.Config) { c.UndoWindow = -1 })
		s, ctx := operator.As(d, someone(ops.Administrator)), context.WithoutCancel(t.Context())
		start := func(action ops.Action, consumer string) int64 {
			t.Helper()
			return testapp.Must[ops.Operation](t)(s.Operations().Start(ctx, planned(t, s, action, ofConsumer(consumer)).ID,
				ops.StartOptions{Canary: 3, Reason: "why"})).ID
		}
		var trying []int64
		for i := range 4 {
			trying = append(trying, start(ops.Requeue, fmt.Sprintf("c%d", i)))
		}
		runner(t, d)
		for _, id := range trying {
			testapp.Eventually(t, "its canaries are under way", func() bool {
				return a.Count("SELECT changed FROM message_operations WHERE id = ?", id) == 3
			})
		}
		awaitState(t, s, start(ops.Discard, "c4"), ops.Done)
		if db.Dialect().Name() == dialect.SQLite {
			return
		}
		last := start(ops.Discard, "c5")
		awaitState(t, s, last, ops.Done)
		a.Exec("UPDATE message_operations SET leased_by = NULL, leased_until = NULL, state = 'waiting' WHERE id = ?", trying[0])
		tx := testapp.Must[bun.Tx](t)(db.BeginTx(ctx, nil))
		defer func() { _ = tx.Rollback() }()
		var locked []int64
		testapp.OK(t, tx.NewRaw("SELECT id FROM message_operations WHERE id = ? FOR UPDATE", trying[0]).Scan(ctx, &locked))
		a.Exec("UPDATE message_operations SET leased_by = NULL, leased_until = NULL, finished_at = NULL, state = 'waiting' WHERE id = ?", last)
		runner(t, serviceOf(t, db, a.Registry))
		awaitState(t, s, last, ops.Done)
	})
}

// TestOnlyWhatWasRequeuedCounts: other messages that fail in the same way meanwhile do not stop an operation.
func TestOnlyWhatWasRequeuedCounts(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 60, testapp.Consumed("c"))
		a.Exec("UPDATE poisoned_messages SET fingerprint = '1aaaaaaaaaaaaaaaa'")
		d := serviceOf(t, db, a.Registry, func(c *ops.Config) { c.UndoWindow = -1 })
		s := operator.As(d, someone(ops.Administrator))
		target := ofConsumer("c")
		target.Poisoned.Fingerprint = "1aaaaaaaaaaaaaaaa"
		o := planned(t, s, ops.Requeue, target)
		a.Exec("INSERT INTO poisoned_messages (id, message_id, consumer_type, payload_type, payload, created_at, available_after, attempts, crashes, poisoned_at, reason, fingerprint) " +
			"SELECT id + 1000, message_id, consumer_type, payload_type, payload, created_at, available_after, attempts, crashes, " +
			testapp.In(db, time.Minute) + ", reason, fingerprint FROM poisoned_messages")
		_ = testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Rate: 15, Canary: -1, Reason: "why"}))
		runner(t, d)
		o = awaitState(t, s, o.ID, ops.Done)
		if o.Changed != 60 {
			t.Errorf("got %+v, want 60 changed", o)
		}
	})
}

// TestRunOnly carries out one operation, tells of itself meanwhile, and returns.
func TestRunOnly(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 5, testapp.Consumed("c"), testapp.Consumed("d"))
		d := serviceOf(t, db, a.Registry, func(c *ops.Config) { c.UndoWindow = -1 })
		s, ctx := operator.As(d, someone(ops.Administrator)), t.Context()
		var ids []int64
		for _, consumer := range []string{"c", "d"} {
			ids = append(ids, testapp.Must[ops.Operation](t)(s.Operations().Start(ctx, planned(t, s, ops.Discard, ofConsumer(consumer)).ID,
				ops.StartOptions{Reason: "why"})).ID)
		}
		r := testapp.Must[*ops.Runner](t)(ops.NewRunner(d, nil))
		testapp.OK(t, operator.RunOnly(ctx, r, ids[1]))
		first, second := operationOf(t, s, ids[0]), operationOf(t, s, ids[1])
		if first.State != ops.Waiting || second.State != ops.Done || second.Changed != 5 {
			t.Errorf("got %+v and %+v, want the second done, and only that", first, second)
		}
		if err := operator.RunOnly(ctx, r, 999); err != nil {
			t.Errorf("one that is not there: %v", err)
		}
		if n := a.Count("SELECT count(*) FROM message_processes WHERE kind = 'operations' AND stopped_at IS NOT NULL"); n != 1 {
			t.Errorf("got %d processes that carried out operations, and have stopped, want 1", n)
		}
	})
}
