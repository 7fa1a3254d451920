package eventlog_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestCheckpointsUnderAStricterDefault has somebody else write to a checkpoint
// while a statement of our own waits for it: under REPEATABLE READ, the default of
// this database, that is a conflict, which must not surface.
func TestCheckpointsUnderAStricterDefault(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t, testdb.Isolation("repeatable read"))
	others := newLedger(t, testdb.OpenPostgres(t, dsn))
	var met atomic.Int64
	var holding sync.WaitGroup
	t.Cleanup(holding.Wait)
	beside := func(sql string) string {
		if !strings.HasPrefix(sql, `UPDATE "event_subscriptions" SET status`) || met.Add(1)%2 == 0 { // even: the second try
			return sql
		}
		tx, err := others.db.BeginTx(others.ctx, nil)
		if err == nil {
			_, err = tx.NewRaw("UPDATE event_subscriptions SET moved_at = moved_at").Exec(others.ctx)
		}
		if err != nil {
			t.Errorf("hold the checkpoint: %v", err)
		}
		holding.Go(func() {
			eventually(t, "a statement waits for the checkpoint", func() bool {
				return others.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") > 0
			})
			if err := tx.Commit(); err != nil {
				t.Errorf("let go of the checkpoint: %v", err)
			}
		})
		return sql + " /* beside another */"
	}
	l := &ledger{newApp(t, testdb.OpenRewritten(t, dsn, beside))}
	var broken atomic.Bool
	broken.Store(true)
	p := projection.Projection{Name: "p", MaxAttempts: 1, On: []projection.Handler{projection.On(func(context.Context, bun.Tx, moved) error {
		if broken.Load() {
			return errors.New("broken on purpose")
		}
		return nil
	})}}
	r := l.runner(p)
	others.append("account-1", eventlog.AnyVersion, moved{1})
	if _, err := r.CatchUp(l.ctx); err == nil || !strings.Contains(err.Error(), "broken on purpose") || dberr.IsConflict(err) {
		t.Errorf("catch up: got %v, want the error of the projection", err)
	}
	broken.Store(false)
	if n, err := r.Resume(l.ctx, "p", 1); n != 1 || err != nil {
		t.Errorf("resume: got %d and %v, want the halted shard", n, err)
	}
	l.catchUp(r)
	if met.Load() != 4 {
		t.Errorf("statements: got %d, want two that lose a conflict and are repeated", met.Load())
	}
}

// TestAConflictOfTheCallersIsTheirs appends at a version that somebody else has
// taken since the transaction began, at REPEATABLE READ: the database refuses it.
func TestAConflictOfTheCallersIsTheirs(t *testing.T) {
	t.Parallel()
	a := newApp(t, testdb.OpenPostgres(t, testdb.PostgresDSN(t, testdb.Isolation("repeatable read"))))
	a.append("account-1", eventlog.NoStream, moved{1})
	err := a.producer.RunInTx(a.ctx, a.db, func(ctx context.Context, tx bun.Tx) error {
		if n := len(a.stream("account-1")); n != 1 {
			t.Errorf("events: got %d, want 1", n)
		}
		if _, err := tx.NewRaw("SELECT 1 FROM events").Exec(ctx); err != nil { // its snapshot
			return err
		}
		a.append("account-1", 1, moved{2})
		_, err := a.log.Append(ctx, tx, "account-1", 1, moved{3})
		return err
	})
	if !dberr.IsConflict(err) {
		t.Errorf("append at REPEATABLE READ beside another: got %v, want a serialization failure", err)
	}
	if n := len(a.stream("account-1")); n != 2 {
		t.Errorf("events: got %d, want 2", n)
	}
}

// A projection's function may set search_path and a role for its transaction: the
// checkpoint that moves is the one that was locked.
// Promise: search-path
func TestCheckpointsIgnoreTheSearchPathOfTheHandler(t *testing.T) {
	db := testdb.OpenPostgres(t, testdb.EmptyPostgresDSN(t, "search_path=tenant_a"))
	for _, schema := range []string{"tenant_a", "tenant_b"} {
		testapp.OK(t, testapp.Second(db.ExecContext(t.Context(), "CREATE SCHEMA "+schema)))
	}
	testapp.OK(t, outbox.Migrate(t.Context(), db, bus.Tables{Schema: "tenant_b"}))
	a := newApp(t, db)
	a.exec("CREATE TABLE tenant_b.effects (n int)")
	a.exec("GRANT USAGE ON SCHEMA tenant_b TO pg_monitor") // a role that every server has
	a.exec("GRANT ALL ON tenant_b.effects TO pg_monitor")
	reset := 0
	astray := func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.ExecContext(ctx, "SET LOCAL ROLE pg_monitor; SET LOCAL search_path = tenant_b")
		return err
	}
	runner, err := projection.NewRunner(db, a.log, projection.RunnerConfig{}, projection.Projection{
		Name: "tenants", BatchSize: 3, OnError: projection.ParkStream, MaxAttempts: 1,
		Reset: func(ctx context.Context, tx bun.Tx) error {
			reset++
			if err := astray(ctx, tx); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "DELETE FROM effects")
			return err
		},
		On: []projection.Handler{projection.On(func(ctx context.Context, tx bun.Tx, e moved) error {
			if e.Amount < 0 {
				return bus.Permanent(errRefused)
			}
			if err := astray(ctx, tx); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (?)", e.Amount)
			return err
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		a.append("account-a", eventlog.ExpectedVersion(i), moved{1})
	}
	a.append("account-b", eventlog.NoStream, moved{-1}, moved{1}) // parked, and its stream with it
	for range 2 {
		if _, err := runner.CatchUp(t.Context()); err != nil && !strings.Contains(err.Error(), errRefused.Error()) {
			t.Fatalf("catch up: %v", err)
		}
		if _, err := runner.CatchUp(t.Context()); err != nil {
			t.Fatalf("catch up: %v", err)
		}
		if n := a.count("SELECT count(*) FROM tenant_b.effects"); n != 10 {
			t.Errorf("events applied: got %d, want each of 10 once", n)
		}
		parked, err := runner.Parked(t.Context(), "tenants", 10)
		if err != nil || len(parked) != 2 {
			t.Errorf("parked: got %v, error %v, want two of a stream", parked, err)
		}
		if err := runner.Rebuild(t.Context(), "tenants"); err != nil {
			t.Fatalf("rebuild: %v", err)
		}
	}
	if reset != 2 {
		t.Errorf("resets: got %d, want 2", reset)
	}
}
