package ops_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// TestThroughAPooler: behind pgbouncer in transaction mode, where the next transaction may run on another session,
// reports are written, a service reads, operations run to their end, steps are stored, groups end and messages are kept. No setting
// stays in a session.
func TestThroughAPooler(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			through := strings.Replace(testdb.Pgbouncer(t, testdb.DirectDSN(t)), "default_query_exec_mode=exec", "default_query_exec_mode="+mode, 1)
			if !strings.Contains(through, "="+mode) {
				t.Fatalf("got %s, want the mode %s in it", through, mode)
			}
			db := testdb.OpenPostgres(t, through)
			var runs atomic.Int64
			a, _ := testapp.NewPoisoned(t, db, 300, bus.Consume("c", func(ctx context.Context, _ order) error {
				return testapp.Second(outbox.Step(ctx, "count", func(context.Context) (int64, error) { return runs.Add(1), nil }))
			}, bus.Keep(time.Hour), bus.KeepPayload()),
				bus.Consume("fails", func(context.Context, refund) error { return bus.Permanent(errors.New("no")) }))
			others := takeTurns(t, db)
			p := a.Start(testapp.Fast())
			a.Produce(refund{})
			testapp.Eventually(t, "it is poisoned", func() bool { return len(a.Poisoned()) == 301 })

			d := serviceOf(t, db, a.Registry)
			s, ctx := operator.As(d, someone(ops.Administrator)), t.Context()
			runner(t, d)
			o := planned(t, s, ops.Requeue, ofConsumer("c"))
			testapp.Must[ops.Operation](t)(s.Operations().Start(ctx, o.ID, ops.StartOptions{Rate: 1000, Canary: 10, Reason: "fixed"}))
			o = awaitState(t, s, o.ID, ops.Done)
			if o.Changed != 300 {
				t.Errorf("done: got %+v, want 300 changed", o)
			}
			testapp.Eventually(t, "all have run", func() bool { return runs.Load() == 300 && len(a.Pending()) == 0 })
			endsAGroup(t, a, &runs)
			patient := operator.As(serviceOf(t, db, a.Registry, func(c *ops.Config) { c.UndoWindow = time.Hour }), someone(ops.Administrator))
			o = planned(t, patient, ops.Discard, ofConsumer("fails"))
			testapp.Must[ops.Operation](t)(patient.Operations().Start(ctx, o.ID, ops.StartOptions{Reason: "no use"}))
			o = testapp.Must[ops.Operation](t)(patient.Operations().Undo(ctx, "of use", o.ID))
			if o.State != ops.Undone || len(a.Poisoned()) != 1 {
				t.Errorf("undone: got %+v and %d poisoned, want 1", o, len(a.Poisoned()))
			}
			groups, _, err := s.Poisoned().Groups(ctx, "")
			if err != nil || len(groups) != 1 {
				t.Errorf("groups: got %+v, error %v, want one", groups, err)
			}
			_, _, listed := s.Poisoned().List(ctx, poison.Filter{Error: "no"}, admin.Page{})
			if err := errors.Join(listed, s.Consumers().Pause(ctx, "c", "wait"), s.Consumers().Resume(ctx, "c", "go on"),
				testapp.Second(s.Overview(ctx)), testapp.Second(s.Doctor(ctx)), testapp.Second(s.Check(ctx))); err != nil {
				t.Error(err)
			}
			p.MustStop()
			for _, table := range []string{"message_processes", "message_minutes", "message_failures"} {
				if a.Count("SELECT count(*) FROM "+table) == 0 {
					t.Errorf("%s: got no rows, want what was reported", table)
				}
			}
			others()
			sameSettings(t, db)
		})
	}
}

// endsAGroup of ten members. The consumer of all of them keeps each message that it has counted.
func endsAGroup(t *testing.T, a *testapp.App, runs *atomic.Int64) {
	t.Helper()
	all, want := outbox.Group("all"), int(runs.Load())+11
	testapp.OK(t, a.Producer.RunInTx(t.Context(), a.DB, func(ctx context.Context, tx bun.Tx) error {
		members := slices.Repeat([]outbox.Item{{Payload: order{}, Options: []outbox.Option{all}}}, 10)
		return errors.Join(testapp.Second(a.Producer.ProduceMany(ctx, tx, members...)), a.Producer.WhenDone(ctx, tx, all, order{}))
	}))
	testapp.Eventually(t, "the group has ended", func() bool { return int(runs.Load()) == want && len(a.Pending()) == 0 })
	if kept := a.Count("SELECT count(DISTINCT message_id) FROM consumed_messages"); kept != want {
		t.Errorf("kept: got %d messages, want %d", kept, want)
	}
}

// takeTurns holds another session now and then, so that the pooler hands out several.
func takeTurns(t *testing.T, db *bun.DB) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				return testapp.Second(tx.ExecContext(ctx, "SELECT pg_sleep(0.005)"))
			})
		}
	}()
	return func() { cancel(); <-done }
}

// sameSettings holds sessions of the server all at once, and compares their settings with those of the database.
func sameSettings(t *testing.T, db *bun.DB) {
	t.Helper()
	const settings = `SELECT string_agg(name || '=' || setting, ' ') FROM pg_settings
		WHERE source = 'session' AND name IN ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'default_transaction_read_only', 'search_path', 'role', 'plan_cache_mode', 'enable_seqscan')`
	for i := range 10 {
		tx := testapp.Must[bun.Tx](t)(db.BeginTx(t.Context(), nil))
		defer tx.Rollback() //nolint:errcheck // it has changed nothing
		var left sql.NullString
		if err := tx.NewRaw(settings).Scan(t.Context(), &left); err != nil || left.Valid {
			t.Errorf("session %d: got %v, error %v, want no setting of its own", i, left, err)
		}
	}
}
