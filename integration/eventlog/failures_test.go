package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/decider"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// failing replaces one statement, the so many-th from when it is armed, by an
// error of the database.
type failing struct {
	left atomic.Int64
	code atomic.Value
}

func (f *failing) arm(code string, statement int) {
	f.code.Store(code)
	f.left.Store(int64(statement))
}

func (f *failing) rewrite(sql string) string {
	if f.left.Load() > 0 && f.left.Add(-1) == 0 {
		return fmt.Sprintf("DO $$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = '%s'; END $$", f.code.Load())
	}
	return sql
}

// failureCodes are those of a conflict, a disk that is full, a server that shuts down, and what
// nobody expects.
var failureCodes = []string{"40001", "53100", "57P01", "XX000"}

// TestEachStatementOfARunnerFailsOnce has what is appended be applied once all the
// same.
func TestEachStatementOfARunnerFailsOnce(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	others := newLedger(t, testdb.OpenPostgres(t, dsn))
	var f failing
	l := &ledger{newApp(t, testdb.OpenRewritten(t, dsn, f.rewrite))}
	r := l.runner(balances())
	running(t, "runner", r.Run)
	if err := r.WaitFor(l.ctx, "balances", others.append("account-1", eventlog.AnyVersion, moved{0})); err != nil { // it has started
		t.Fatal(err)
	}
	appended := 1
	for _, code := range failureCodes {
		for statement := 1; statement <= 11; statement++ {
			f.arm(code, statement)
			last := others.append("account-1", eventlog.AnyVersion, moved{1}, moved{2})
			appended += 2
			eventually(t, fmt.Sprintf("applied when statement %d fails with %s", statement, code), func() bool {
				return others.count("SELECT count(*) FROM event_subscriptions WHERE position >= ? AND status = 'running'", appended) == 1
			})
			if n := others.count("SELECT count(*) FROM applied"); n != appended || last.Version != int64(appended) {
				t.Fatalf("applied when statement %d fails with %s: got %d events, want %d", statement, code, n, appended)
			}
		}
	}
	others.mustFold("")
}

// TestEachStatementOfACommandFailsOnce has a command, and a replay, succeed or fail
// as a whole.
func TestEachStatementOfACommandFailsOnce(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	consumers := func() bus.Consumer {
		return bus.Consume("c", func(context.Context, moved) error { return nil })
	}
	others := newApp(t, testdb.OpenPostgres(t, dsn), consumers())
	var f failing
	a := newApp(t, testdb.OpenRewritten(t, dsn, f.rewrite), consumers())
	others.append("account-1", eventlog.NoStream, opened{})
	version := 1
	for _, code := range failureCodes {
		for statement := 1; statement <= 8; statement++ {
			f.arm(code, statement)
			_, appended, err := decider.Execute(a.ctx, a.log, a.db, accounts(3), "1", 1)
			if err == nil {
				version++
			}
			f.arm(code, 0)
			if code == "40001" && err != nil {
				t.Errorf("command whose statement %d meets a conflict: got %v, want it repeated", statement, err)
			}
			if err != nil && !strings.Contains(err.Error(), "on purpose") || err == nil && appended.Version != int64(version) {
				t.Errorf("command whose statement %d fails with %s: got version %d and %v, want %d or the error", statement, code,
					appended.Version, err, version)
			}
			if n := len(others.stream("account-1")); n != version {
				t.Fatalf("events when statement %d fails with %s: got %d, want %d", statement, code, n, version)
			}
			if n := others.count("SELECT count(*) FROM consumer_messages"); n != version-1 {
				t.Fatalf("messages when statement %d fails with %s: got %d, want %d", statement, code, n, version-1)
			}
		}
	}
	others.number()
	others.exec("DELETE FROM consumer_messages")
	for i, code := range failureCodes {
		for statement := 1; statement <= 12; statement++ {
			name := fmt.Sprintf("replay %d/%d", i, statement)
			f.arm(code, statement)
			first, err := a.log.Replay(a.ctx, a.db, eventlog.Replay{Name: name, Consumer: "c"})
			f.arm(code, 0)
			if err != nil && code == "40001" {
				t.Errorf("replay whose statement %d meets a conflict: got %v, want it repeated", statement, err)
			}
			second, err := a.log.Replay(a.ctx, a.db, eventlog.Replay{Name: name, Consumer: "c"})
			if err != nil || first+second != version-1 {
				t.Errorf("replay whose statement %d fails with %s: got %d and %d and %v, want %d in all", statement, code, first, second, err,
					version-1)
			}
			if n := others.count("SELECT count(*) FROM consumer_messages"); n != version-1 {
				t.Fatalf("messages of a replay whose statement %d fails with %s: got %d, want %d", statement, code, n, version-1)
			}
			others.exec("DELETE FROM consumer_messages")
		}
	}
}

// TestAnAbortedTransactionDoesNotDelayOthers: on PostgreSQL a statement that fails takes all others of the transaction with it,
// also when the function gives the event up, or does not return the error.
func TestAnAbortedTransactionDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		discards bool
		parked   int
	}{"discarded": {true, 0}, "not returned": {false, 1}} {
		for _, batch := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, in batches %v", name, batch), func(t *testing.T) {
				t.Parallel()
				l := newLedger(t, testdb.Postgres(t))
				p := balances()
				p.Name, p.OnError, p.MaxAttempts = "p", projection.Park, 2
				handle := func(ctx context.Context, tx bun.Tx, stream string, amount int) error {
					if _, err := tx.NewRaw("INSERT INTO applied VALUES (?, ?, '')", stream, amount).Exec(ctx); err != nil {
						return err
					}
					if amount != 2 {
						return nil
					}
					if _, err := tx.NewRaw("INSERT INTO nonsense VALUES (1)").Exec(ctx); test.discards {
						return bus.Discard(err)
					}
					return nil
				}
				p.On = []projection.Handler{projection.On(func(ctx context.Context, tx bun.Tx,
					e moved) error {
					return handle(ctx, tx, "account-1", e.Amount)
				})}
				if batch {
					p.On, p.Types = nil, []string{"account.moved"}
					p.Batch = func(ctx context.Context, tx bun.Tx, events []eventlog.RecordedEvent) error {
						for _, e := range events {
							if err := handle(ctx, tx, e.Stream, e.Data.(moved).Amount); err != nil {
								return err
							}
						}
						return nil
					}
				}
				r := l.runner(p)
				running(t, "runner", r.Run)
				l.append("account-1", eventlog.AnyVersion, moved{1}, moved{2}, moved{3}, moved{4}, moved{5})
				eventually(t, "all but one are applied", func() bool { return l.count("SELECT count(*) FROM applied") == 4 })
				eventually(t, "the shard is at the end", func() bool { return l.count("SELECT position FROM event_subscriptions") == 5 })
				stats, err := r.Stats(l.ctx)
				if err != nil || stats[0].Parked != test.parked || stats[0].Halted != 0 || r.Health().Err != nil {
					t.Errorf("got %+v, error %v, health %v, want %d parked and no outage", stats, err, r.Health().Err, test.parked)
				}
			})
		}
	}
}

// What a function's own statement fails with is the function's failure, whatever it looks
// like: the event is put aside, and others are applied meanwhile.
func TestAFailingStatementOfAProjectionIsParked(t *testing.T) {
	cases := []struct {
		name, statement string
		timeout         time.Duration
		atLeast, atMost int64 // runs
	}{
		{name: "statement_timeout", statement: "SET LOCAL statement_timeout = '20ms'; SELECT pg_sleep(10)", atLeast: 2, atMost: 2},
		{name: "lock_timeout", statement: "SET LOCAL lock_timeout = '20ms'; LOCK TABLE locked", atLeast: 2, atMost: 2},
		// The driver closes the connection of a statement at its deadline. Where the server had not answered by then, that looks like a
		// lost connection, of which ten in a row count as an attempt.
		{name: "the deadline of the function", statement: "SELECT pg_sleep(10)", timeout: 100 * time.Millisecond, atLeast: 2, atMost: 60},
		// On a busy machine the server does not say in time that it takes writes, and a run is
		// put back: ten of those count as an attempt.
		{name: "a read-only transaction", statement: "SET LOCAL transaction_read_only = on; INSERT INTO effects VALUES (1)", atLeast: 2,
			atMost: 60},
		// Each attempt is counted after ten tries, and again where the statement that writes
		// it down meets a connection of the pool that has just been ended.
		{name: "a connection that it ends itself", statement: "SELECT pg_terminate_backend(pg_backend_pid())", atLeast: 10, atMost: 60},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := testdb.OpenPostgres(t, testdb.DirectDSN(t)) // one statement has to be cancelled
			a := newApp(t, db)
			a.exec("CREATE TABLE locked (n int)")
			a.exec("CREATE TABLE effects (n int)")
			holder := testapp.Must[bun.Tx](t)(db.BeginTx(a.ctx, nil))
			defer holder.Rollback() //nolint:errcheck // it has nothing to say
			testapp.OK(t, testapp.Second(holder.ExecContext(a.ctx, "LOCK TABLE locked")))
			var runs, others atomic.Int64
			runner, err := projection.NewRunner(db, a.log, projection.RunnerConfig{},
				projection.Projection{Name: "bad", MaxAttempts: 2, AttemptDelay: time.Millisecond, OnError: projection.Park, Timeout: c.timeout,
					On: []projection.Handler{projection.On(func(ctx context.Context, tx bun.Tx, _ moved) error {
						runs.Add(1)
						_, err := tx.ExecContext(ctx, c.statement)
						return err
					})}},
				projection.Projection{Name: "good", On: []projection.Handler{projection.On(func(context.Context, bun.Tx, opened) error {
					others.Add(1)
					return nil
				})}})
			if err != nil {
				t.Fatal(err)
			}
			a.append("account-a", eventlog.NoStream, moved{1})
			running(t, "runner", runner.Run)
			eventually(t, "the first run", func() bool { return runs.Load() > 0 })
			a.append("account-b", eventlog.NoStream, opened{"ann"})
			eventually(t, "the other projection goes on", func() bool { return others.Load() == 1 })
			eventually(t, "the event is parked", func() bool {
				parked := testapp.Must[[]projection.Parked](t)(runner.Parked(a.ctx, "bad", 10))
				return len(parked) == 1
			})
			if n := runs.Load(); n < c.atLeast || n > c.atMost {
				t.Errorf("runs: got %d, want %d to %d", n, c.atLeast, c.atMost)
			}
		})
	}
}

// deaf is an error of which the methods panic, being a nil pointer.
type deaf struct{ cause error }

func (d *deaf) Error() string { return d.cause.Error() }
func (d *deaf) Unwrap() error { return d.cause }

// formless is moved with an upcaster that panics.
type formless struct{}

func (formless) PayloadType() string { return "account.moved" }

func (formless) Upcasters() []bus.Upcaster {
	return []bus.Upcaster{func(context.Context, []byte) ([]byte, error) { panic("no form") }}
}

// TestWhatPanicsIsAFailureOfAProjection, and not the end of the process: its goroutines have nobody above them who
// would recover.
func TestWhatPanicsIsAFailureOfAProjection(t *testing.T) {
	t.Parallel()
	none := func(context.Context, bun.Tx, []eventlog.RecordedEvent) error { return nil }
	upcasting := testapp.Must[*eventlog.Types](t)(eventlog.NewTypes(eventlog.Event[opened](), eventlog.Event[formless]()))
	for name, test := range map[string]struct {
		types      *eventlog.Types
		config     projection.RunnerConfig
		projection projection.Projection
		says       string
	}{
		"upcaster of a batch": {types: upcasting, projection: projection.Projection{Batch: none, Types: []string{"account.moved"}},
			says: "upcast from schema 1: *bus.PanicError (text withheld"},
		"telemetry": {says: "no meter", projection: projection.Projection{Batch: none, Types: []string{"account.moved"}},
			config: projection.RunnerConfig{Telemetry: func(bus.ProduceFunc) bus.ProduceFunc {
				return func(context.Context, *bus.Batch) error { panic(errors.New("no meter")) }
			}}},
		"telemetry that keeps a batch": {says: "has not passed a batch on",
			projection: projection.Projection{Batch: none, Types: []string{"account.moved"}},
			config: projection.RunnerConfig{Telemetry: func(bus.ProduceFunc) bus.ProduceFunc {
				return func(context.Context,
					*bus.Batch) error {
					return nil
				}
			}}},
		"an error that cannot speak": {says: "deaf", config: projection.RunnerConfig{Chain: []bus.Middleware{}},
			projection: projection.Projection{
				On: []projection.Handler{projection.On(func(context.Context, bun.Tx, moved) error { return (*deaf)(nil) })}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
				newApp(t, db).append("account-1", eventlog.NoStream, moved{1}, moved{2})
				l := &ledger{setup{types: test.types}.newApp(t, db)}
				test.projection.Name, test.projection.AttemptDelay, test.config.PollInterval = "p", time.Millisecond, 20*time.Millisecond
				r, err := projection.NewRunner(db, l.log, test.config, test.projection, projection.Projection{
					Name: "other", On: []projection.Handler{projection.On(func(context.Context, bun.Tx, opened) error { return nil })}})
				if err != nil {
					t.Fatal(err)
				}
				running(t, "runner", r.Run)
				eventually(t, "the failure is written down", func() bool {
					var says string
					err := db.NewRaw("SELECT COALESCE(last_error, '') FROM event_subscriptions WHERE name = 'p'").Scan(l.ctx, &says)
					return err == nil && strings.Contains(says, test.says)
				})
			})
		})
	}
}

// TestNoEventOfAParkedStreamIsLost has one of another stream fail for good behind it, in
// the same page.
func TestNoEventOfAParkedStreamIsLost(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		for _, name := range []string{"one", "batch"} {
			t.Run(name, func(t *testing.T) {
				l := &ledger{setup{tables: bus.Tables{Prefix: name + "_"}}.newApp(t, db)}
				l.exec("CREATE TABLE applied" + name + " (stream text, version int, mode text)")
				var whole atomic.Bool
				one := func(ctx context.Context, tx bun.Tx, stream string, version int64, amount int) error {
					if amount < 0 && !whole.Load() {
						return bus.Permanent(errors.New("a negative amount"))
					}
					_, err := tx.NewRaw("INSERT INTO applied"+name+" VALUES (?, ?, '')", stream, version).Exec(ctx)
					return err
				}
				p := projection.Projection{Name: "p", OnError: projection.ParkStream, AttemptDelay: time.Millisecond}
				ofMoves(&p, name == "batch", one)
				// A runner of its own for each part: the next begins with a whole page.
				run := func(last eventlog.Appended) *projection.Runner {
					r := l.runner(p)
					defer running(t, "runner", r.Run)()
					testapp.OK(t, r.WaitFor(l.ctx, "p", last))
					return r
				}
				run(l.append("account-a", eventlog.AnyVersion, moved{-1}))
				l.append("account-a", eventlog.AnyVersion, moved{2}, moved{3})
				l.append("account-b", eventlog.AnyVersion, moved{-4})
				r := run(l.append("account-a", eventlog.AnyVersion, moved{5}))
				if parked, err := r.Parked(l.ctx, "p", 10); len(parked) != 5 || err != nil {
					t.Errorf("parked: got %+v and %v, want all 5", parked, err)
				}
				whole.Store(true)
				if n, err := r.RetryParked(l.ctx, "p"); n != 5 || err != nil {
					t.Errorf("retry parked: got %d and %v, want 5", n, err)
				}
				if n := l.count("SELECT count(*) FROM applied" + name); n != 5 {
					t.Errorf("applied in the end: got %d, want each of 5 once", n)
				}
			})
		}
	})
}
