package eventlog_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
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

// TestALongWayToNumberIsNoOutage has numbering take longer than a statement may,
// as after an import: projections go on with what has its position, and nobody
// speaks of an outage.
func TestALongWayToNumberIsNoOutage(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	others := newLedger(t, testdb.OpenPostgres(t, dsn))
	slow := testdb.Replacing(t, "WITH todo AS MATERIALIZED (SELECT sequence FROM",
		"WITH slow AS MATERIALIZED (SELECT pg_sleep(1.5)), todo AS MATERIALIZED (SELECT sequence FROM slow,")
	l := &ledger{newApp(t, testdb.OpenRewritten(t, dsn, slow))}
	events := make([]bus.Payload, 9_000) // five pages
	for i := range events {
		events[i] = opened{}
	}
	others.append("account-1", eventlog.AnyVersion, moved{1})
	first := others.append("account-1", eventlog.AnyVersion, events...)
	log := &testapp.Lines{}
	p := balances()
	p.BatchSize = 5000
	r, err := projection.NewRunner(l.db, l.log, projection.RunnerConfig{PollInterval: 20 * time.Millisecond, Logger: log.Logger()}, p)
	if err != nil {
		t.Fatal(err)
	}
	running(t, "runner", r.Run)
	unnumbered := func() int { return others.count("SELECT count(*) FROM events WHERE position IS NULL") }
	eventually(t, "the first event is applied", func() bool { return others.table("")["account-1"] == 1 })
	if unnumbered() == 0 {
		t.Error("the first event was applied once all had positions, want it before")
	}
	eventually(t, "all have positions", func() bool { return unnumbered() == 0 })
	if err := r.Health().Err; err != nil {
		t.Errorf("health: got %v, want no error", err)
	}
	if strings.Contains(log.String(), "statement failed") {
		t.Errorf("log: got %q, want nothing of an outage", log)
	}
	if err := r.WaitFor(l.ctx, "balances", first); err != nil {
		t.Error(err)
	}
}

// TestAClaimIsNotGivenBackWhileItsEventsAreRead: reading them can take longer than a
// lease, while the table is locked.
func TestAClaimIsNotGivenBackWhileItsEventsAreRead(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var now, overlaps, runs, started atomic.Int64
	long := make(chan struct{})
	a := newApp(t, db, bus.Consume("long", func(context.Context, opened) error { started.Add(1); <-long; return nil },
		bus.Timeout(time.Minute)),
		bus.Consume("c", func(context.Context, moved) error {
			if now.Add(1) > 1 {
				overlaps.Add(1)
			}
			defer now.Add(-1)
			runs.Add(1)
			<-time.After(500 * time.Millisecond)
			return nil
		}))
	defer close(long)
	for range 2 {
		processor, err := outbox.NewProcessor(a.db, a.registry,
			outbox.ProcessorConfig{LeaseDuration: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		running(t, "processor", processor.Run)
	}
	for range 4 { // so that renewals have something to do
		a.append("account-0", eventlog.AnyVersion, opened{"x"})
	}
	eventually(t, "they run", func() bool { return started.Load() == 4 })
	lock, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Rollback()                                     //nolint:errcheck // nothing is written
	err = a.inTx(func(ctx context.Context, tx bun.Tx) error { // due once the table is locked
		if _, err := a.log.Append(ctx, tx, "account-1", eventlog.AnyVersion, moved{1}); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "UPDATE consumer_messages SET available_after = now() + interval '1 second' WHERE consumer_type = 'c'")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	testapp.OK(t, testapp.Second(lock.ExecContext(t.Context(), "LOCK TABLE events IN ACCESS EXCLUSIVE MODE")))
	<-time.After(4 * time.Second)
	testapp.OK(t, lock.Rollback())
	eventually(t, "it ran", func() bool { return a.count("SELECT count(*) FROM consumer_messages WHERE consumer_type = 'c'") == 0 })
	if runs.Load() != 1 || overlaps.Load() != 0 {
		t.Errorf("runs of one message: got %d, of which %d beside another, want one", runs.Load(), overlaps.Load())
	}
}
