package ops_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

const (
	resetOf = "ASYNCMONOLITH_TEST_RESET" // the database of a process that runs operations, and whose Reset ends it
	resetBy = 3                          // its exit code
)

// balances are the service and the projections of a program.
func balances(db *bun.DB, reset func(context.Context, bun.Tx) error) (*ops.Service, *projection.Runner, error) {
	types, err := eventlog.NewTypes(eventlog.Event[deposited]())
	if err != nil {
		return nil, nil, err
	}
	registry, err := bus.RegistryConfig{Events: types}.NewRegistry()
	if err != nil {
		return nil, nil, err
	}
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{})
	if err != nil {
		return nil, nil, err
	}
	log, err := eventlog.NewLog(registry, producer, eventlog.LogConfig{})
	if err != nil {
		return nil, nil, err
	}
	readers, err := projection.NewRunner(db, log, projection.RunnerConfig{Logger: slog.New(slog.DiscardHandler)}, projection.Projection{
		Name: "balances", Reset: reset, On: []projection.Handler{projection.On(func(context.Context, bun.Tx, deposited) error { return nil })},
	})
	if err != nil {
		return nil, nil, err
	}
	service, err := ops.New(ops.Config{DB: db, Registry: registry, UndoWindow: -1, Logger: slog.New(slog.DiscardHandler)})
	return service, readers, err
}

// runReset is what a process does whose Reset ends it.
func runReset(dsn string) error {
	db, err := opened(dsn)
	if err != nil {
		return err
	}
	service, readers, err := balances(db, func(context.Context, bun.Tx) error { os.Exit(resetBy); return nil })
	if err != nil {
		return err
	}
	r, err := ops.NewRunner(service, readers)
	if err != nil {
		return err
	}
	return r.Run(context.Background())
}

// TestAnOperationThatEndsProcessesIsPaused after three of them: else it would end every process of the fleet in turn.
// Promise: fatal-operation
func TestAnOperationThatEndsProcessesIsPaused(t *testing.T) {
	t.Parallel()
	eachShared(t, func(t *testing.T, db *bun.DB, dsn string) {
		service, readers, err := balances(db, nil)
		if err != nil {
			t.Fatal(err)
		}
		testapp.OK(t, errors.Join(outbox.Migrate(t.Context(), db, bus.Tables{}), readers.Check(t.Context())))
		s := operator.As(service, someone(ops.Administrator))
		o := planned(t, s, ops.Rebuild, ops.Target{Projection: "balances"})
		_ = testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Reason: "columns were added"}))
		isPaused := func() bool { return operationOf(t, s, o.ID).State == ops.Paused }
		if died := dies(t, db, dsn, o.ID, 5, isPaused); died != 3 {
			t.Errorf("got %d processes that died, want 3", died)
		}
		if got := operationOf(t, s, o.ID); got.State != ops.Paused || got.Note != "paused after 3 processes died while running it" {
			t.Errorf("got %s, %q, want paused, and why", got.State, got.Note)
		}
		_ = testapp.Must[ops.Operation](t)(s.Operations().Resume(t.Context(), "it is mended", o.ID, 0))
		if died := dies(t, db, dsn, o.ID, 1, isPaused); died != 1 {
			t.Error("the operation is not tried again after it was continued")
		}
	})
}

// dies starts one process after the other, up to most, without waiting for leases, and returns how many have died when the
// operation is paused.
func dies(t *testing.T, db *bun.DB, dsn string, id int64, most int, paused func() bool) (died int) {
	t.Helper()
	for ; died < most; died++ {
		expire := "UPDATE message_operations SET leased_until = " + testapp.In(db, -time.Second) + " WHERE id = ? AND leased_by IS NOT NULL"
		testapp.OK(t, testapp.Second(db.NewRaw(expire, id).Exec(t.Context())))
		process := exec.Command(os.Args[0])
		process.Env = append(os.Environ(), resetOf+"="+dsn)
		testapp.OK(t, process.Start())
		ended := make(chan error, 1)
		go func() { ended <- process.Wait() }()
		var err error
		over := false
		testapp.Poll(t, "the process dies, or the operation is paused", time.Minute, 10*time.Millisecond, func() bool {
			select {
			case err = <-ended:
				over = true
			default:
			}
			return over || paused()
		})
		if !over {
			_ = process.Process.Kill()
			<-ended
			return died
		}
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != resetBy {
			t.Fatalf("the process ended by itself: %v", err)
		}
	}
	return died
}

// Who is to run operations in a process of its own, and where.
const (
	runnerOf = "ASYNCMONOLITH_TEST_RUNNER"
	sqlite   = "sqlite:"
	kills    = 50
)

// opened opens the database of such a process.
func opened(dsn string) (*bun.DB, error) {
	driver, dialect := "pgx", schema.Dialect(pgdialect.New())
	if path, ok := strings.CutPrefix(dsn, sqlite); ok {
		driver, dialect, dsn = "sqlite", sqlitedialect.New(), "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)"
	}
	conns, err := sql.Open(driver, dsn)
	return bun.NewDB(conns, dialect), err
}

// runOperations is what such a process does until it is killed.
func runOperations(dsn string) error {
	db, err := opened(dsn)
	if err != nil {
		return err
	}
	registry, err := bus.NewRegistry()
	if err != nil {
		return err
	}
	d, err := ops.New(ops.Config{DB: db, Registry: registry})
	if err != nil {
		return err
	}
	r, err := ops.NewRunner(d, nil)
	if err != nil {
		return err
	}
	return r.Run(context.Background())
}

// eachShared runs a test on each database that processes of a DSN can share with it.
func eachShared(t *testing.T, test func(t *testing.T, db *bun.DB, dsn string)) {
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		dsn := testdb.PostgresDSN(t)
		test(t, testdb.OpenPostgres(t, dsn), dsn)
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := t.TempDir() + "/shared.db"
		test(t, testdb.OpenSQLite(t, path), sqlite+path)
	})
}

// TestKilledRunnersRequeueEachMessageOnce: processes that carry out an operation are killed 50 times, at any instant. Each message is
// requeued once, and counted once.
// Promise: plan
func TestKilledRunnersRequeueEachMessageOnce(t *testing.T) {
	t.Parallel()
	eachShared(t, func(t *testing.T, db *bun.DB, dsn string) {
		const n = 3000
		a, _ := testapp.NewPoisoned(t, db, n, testapp.Consumed("c"))
		s := operator.As(serviceOf(t, db, a.Registry), someone(ops.Administrator))
		o := planned(t, s, ops.Requeue, ofConsumer("c"))
		_ = testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID,
			ops.StartOptions{Rate: 100, Canary: -1, Reason: "all of them"}))
		killed := 0
		for ; killed < kills && operationOf(t, s, o.ID).State != ops.Done; killed++ {
			killOne(t, a, dsn, o.ID)
		}
		_ = testapp.Must[ops.Operation](t)(s.Operations().SetRate(t.Context(), "", o.ID, 10_000)) // and now to the end
		a.Exec("UPDATE message_operations SET leased_until = "+testapp.In(db, -time.Second)+" WHERE id = ? AND leased_by IS NOT NULL", o.ID)
		runner(t, serviceOf(t, db, a.Registry))
		o = awaitState(t, s, o.ID, ops.Done)
		if got := a.Count("SELECT count(DISTINCT message_id) FROM consumer_messages"); killed != kills || got != n ||
			len(a.Pending()) != n || o.Changed != n {
			t.Errorf("after %d kills: got %d messages, %d different, %d counted, want %d kills and %d messages", killed, len(a.Pending()),
				got, o.Changed, kills, n)
		}
	})
}

// TestAClockThatIsSetBackDelaysAnOperationByALease: the lease of a process that died is an hour ahead then.
func TestAClockThatIsSetBackDelaysAnOperationByALease(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 1, testapp.Consumed("c"))
		d := serviceOf(t, db, a.Registry, func(c *ops.Config) { c.UndoWindow = -1 })
		s := operator.As(d, someone(ops.Administrator))
		o := planned(t, s, ops.Requeue, ofConsumer("c"))
		_ = testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Canary: -1, Reason: "all of them"}))
		a.Exec("UPDATE message_operations SET leased_by = 'dead', leased_until = "+testapp.In(db, time.Hour)+" WHERE id = ?", o.ID)
		runner(t, d)
		testapp.Eventually(t, "the lease ends within a minute", func() bool {
			return a.Count("SELECT count(*) FROM message_operations WHERE leased_by = 'dead' AND leased_until < "+testapp.In(db, time.Minute)) == 1
		})
	})
}

// killOne starts a process, and kills it while it is at work. The test does not wait for its lease.
func killOne(t *testing.T, a *testapp.App, dsn string, id int64) {
	t.Helper()
	a.Exec("UPDATE message_operations SET leased_until = "+testapp.In(a.DB, -time.Second)+" WHERE id = ? AND leased_by IS NOT NULL", id)
	before := a.Count("SELECT changed FROM message_operations WHERE id = ?", id)
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), runnerOf+"="+dsn)
	testapp.OK(t, process.Start())
	defer func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	}()
	testapp.Poll(t, "the process works", time.Minute, 2*time.Millisecond,
		func() bool { return a.Count("SELECT changed FROM message_operations WHERE id = ?", id) > before })
	<-time.After(rand.N(10 * time.Millisecond))
}

// TestWhatIsBegunCanBeClosed: a change whose process died does not stand in the audit as under way until that forgets it.
func TestWhatIsBegunCanBeClosed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		a.ProduceMany(1)
		s := operator.As(serviceOf(t, db, a.Registry), someone(ops.Administrator))
		testapp.OK(t, testapp.Second(s.Messages().Cancel(t.Context(), "why", int64(a.Count("SELECT MAX(id) FROM consumer_messages")))))
		id := int64(a.Count("SELECT MAX(id) FROM message_operations"))
		begun := func(ago time.Duration) {
			t.Helper()
			a.Exec("UPDATE message_operations SET state = 'started', finished_at = NULL, created_at = "+testapp.In(db, -ago)+" WHERE id = ?", id)
		}
		begun(9 * time.Minute)
		if o, err := s.Operations().Stop(t.Context(), "it must be dead", id); !errors.Is(err, ops.ErrInvalidState) || o.State != ops.Started {
			t.Errorf("within ten minutes: got %+v, error %v, want it as it was", o, err)
		}
		begun(11 * time.Minute)
		stands := func() (found bool) {
			t.Helper()
			for _, f := range testapp.Must[[]ops.Finding](t)(s.Doctor(t.Context())) {
				found = found || f.Check == "operations" && f.Severity != ops.OK
			}
			return found
		}
		if !stands() {
			t.Error("want the doctor to find it")
		}
		if _, err := operator.As(serviceOf(t, db, a.Registry), someone(ops.Viewer)).Operations().Stop(t.Context(), "", id); !errors.Is(err,
			ops.ErrForbidden) {
			t.Errorf("by a viewer: got error %v, want ErrForbidden", err)
		}
		if o, err := s.Operations().Stop(t.Context(), "it is done", id); err != nil || o.State != ops.Stopped || o.FinishedAt.IsZero() ||
			o.Note != "stopped by ada: it is done" {
			t.Errorf("got %+v, error %v, want it closed", o, err)
		}
		if stands() {
			t.Error("want the doctor to find nothing any more")
		}
	})
}

// TestAllowIsAskedOfTheNamed: minutes and crashes are of consumers, and are shown to who may look at those.
func TestAllowIsAskedOfTheNamed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"), testapp.Consumed("d"))
		a.Exec("INSERT INTO message_crashes (row_id, consumer_type, owner, solo, crashed_at) VALUES (1, 'c', 'o', TRUE, " +
			testapp.NowOf(db) + "), (2, 'd', 'o', TRUE, " + testapp.NowOf(db) + ")")
		narrow := operator.As(serviceOf(t, db, a.Registry), ops.Principal{Name: "eve", Role: ops.Administrator,
			Allow: func(_ ops.Action, consumer string) bool { return consumer != "d" }})
		for what, test := range map[string]struct {
			err  error
			want error
		}{
			"minutes of c":    {testapp.Second(narrow.Consumers().Minutes(t.Context(), time.Hour, "c")), nil},
			"minutes of d":    {testapp.Second(narrow.Consumers().Minutes(t.Context(), time.Hour, "d")), ops.ErrForbidden},
			"minutes of both": {testapp.Second(narrow.Consumers().Minutes(t.Context(), time.Hour, "c", "d")), ops.ErrForbidden},
			"crashes of c's":  {testapp.Second(narrow.Messages().Crashes(t.Context(), 1, 10)), nil},
			"crashes of d's":  {testapp.Second(narrow.Messages().Crashes(t.Context(), 2, 10)), ops.ErrForbidden},
		} {
			if !errors.Is(test.err, test.want) {
				t.Errorf("%s: got error %v, want %v", what, test.err, test.want)
			}
		}
		found := testapp.Must[[]operator.Crash](t)(narrow.Messages().Crashes(t.Context(), 1, 10))
		if len(found) != 1 || found[0].Consumer != "c" {
			t.Errorf("got %+v, want the one", found)
		}
	})
}
