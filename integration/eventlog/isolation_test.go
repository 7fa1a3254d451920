package eventlog_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
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
