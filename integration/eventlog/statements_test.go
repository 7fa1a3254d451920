package eventlog_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// TestEventsNumberedDuringAPageAreNotSkipped has an event numbered at the very
// moment at which a batch reads the head.
// Promise: log-read
func TestEventsNumberedDuringAPageAreNotSkipped(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	others := newLedger(t, testdb.OpenPostgres(t, dsn))
	var armed atomic.Bool
	between := func(sql string) string {
		if strings.HasPrefix(sql, `SELECT (SELECT h.position FROM "event_head" h WHERE h.id = 1) AS position`) &&
			armed.CompareAndSwap(true, false) {
			others.append("account-2", eventlog.AnyVersion, moved{2})
			others.number()
			sql += " /* beside an append */"
		}
		return sql
	}
	l := &ledger{newApp(t, testdb.OpenRewritten(t, dsn, between))}
	p := balances()

	r := l.runner(p)
	others.append("account-1", eventlog.AnyVersion, moved{1})
	l.catchUp(r)
	others.append("account-1", eventlog.AnyVersion, moved{1})
	others.number()
	running(t, "runner", func(ctx context.Context) error {
		armed.Store(true)
		return r.Run(ctx)
	})
	testapp.OK(t, r.WaitFor(l.ctx, "balances", others.append("account-3", eventlog.AnyVersion, moved{3})))
	if armed.Load() {
		t.Fatal("nothing was appended beside the page")
	}
	others.mustFold("")
}

// TestTheCheckpointMovesWithTheWrites has the statement fail that moves the
// checkpoint, after a batch was applied.
// Promise: projection
func TestTheCheckpointMovesWithTheWrites(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	others := newLedger(t, testdb.OpenPostgres(t, dsn))
	var failures atomic.Int64
	fail := func(sql string) string {
		if strings.Contains(sql, `UPDATE "event_subscriptions" SET position`) && failures.Add(1) <= 3 {
			return "SELECT 1/0"
		}
		return sql
	}
	l := &ledger{newApp(t, testdb.OpenRewritten(t, dsn, fail))}
	others.fill(3, 20)
	r := l.runner(balances())
	for range 3 {
		if _, err := r.CatchUp(l.ctx); err == nil {
			t.Error("catch up without a checkpoint: got no error")
		}
	}
	l.catchUp(r)
	others.mustFold("")
	if n := others.count("SELECT count(*) FROM applied"); n != 20 {
		t.Errorf("events applied: got %d, want each of 20 once", n)
	}
}

// TestAnEventThatCannotBeReadCostsNoAttempt has the statement fail that reads
// what messages refer to.
func TestAnEventThatCannotBeReadCostsNoAttempt(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	var failures atomic.Int64
	fail := func(sql string) string {
		if strings.Contains(sql, `FROM "events" e WHERE e.sequence IN (`) && failures.Add(1) <= 2 {
			return "SELECT 1/0"
		}
		return sql
	}
	ran := make(chan int, 10)
	a := newApp(t, testdb.OpenRewritten(t, dsn, fail), consumeMoved("c", func(ctx context.Context, attempt int) { ran <- attempt }))
	a.append("account-1", eventlog.AnyVersion, moved{1})
	a.process()
	if attempt := receive(t, ran); attempt != 1 {
		t.Errorf("attempt: got %d, want 1", attempt)
	}
	eventually(t, "it is done", func() bool { return a.count("SELECT count(*) FROM consumer_messages") == 0 })
	if failures.Load() < 3 {
		t.Errorf("reads: got %d, want two that fail and one that does not", failures.Load())
	}
}

// TestAHaltedShardDoesNotAffectOthers has one projection fail beside another.
func TestAHaltedShardDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l := newLedger(t, db)
		broken := projection.Projection{Name: "broken", MaxAttempts: 1, On: []projection.Handler{
			projection.On(func(context.Context, bun.Tx, moved) error { return errors.New("broken") })}}
		r := l.runner(broken, balances())
		running(t, "runner", r.Run)
		l.fill(2, 10)
		testapp.OK(t, r.WaitFor(l.ctx, "balances", l.append("account-0", eventlog.AnyVersion, moved{1})))
		l.mustFold("")
		eventually(t, "the other is halted", func() bool {
			stats, err := r.Stats(l.ctx)
			return err == nil && stats[1].Name == "broken" && stats[1].Halted == 1
		})
	})
}
