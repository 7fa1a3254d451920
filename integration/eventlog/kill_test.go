package eventlog_test

import (
	"bufio"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
)

// victimVariable makes this test binary a process that runs the balances of the
// database, a file or a DSN, until it is killed; stallVariable has it stop for
// good when it has applied the event at that position, before the commit.
const (
	victimVariable = "ASYNCMONOLITH_TEST_VICTIM"
	stallVariable  = "ASYNCMONOLITH_TEST_STALL"
)

func TestVictim(t *testing.T) {
	database := os.Getenv(victimVariable)
	if database == "" {
		t.Skip("it is for other tests to start")
	}
	l := &ledger{newApp(t, openAny(t, database))}
	stall := func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Message) error {
			err := next(ctx, m)
			if fmt.Sprint(m.Event.Position) == os.Getenv(stallVariable) {
				fmt.Println("stalled")
				select {}
			}
			return err
		}
	}
	p := balances()
	p.BatchSize = 10
	r, err := projection.NewRunner(l.db, l.log,
		projection.RunnerConfig{Chain: append([]bus.Middleware{stall}, middleware.Default(middleware.Options{})...)}, p)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("runs")
	testapp.OK(t, r.Run(t.Context()))
}

func openAny(t testing.TB, database string) *bun.DB {
	if strings.HasPrefix(database, "postgres") {
		return testdb.OpenPostgres(t, database)
	}
	return testdb.OpenSQLite(t, database)
}

// victim starts a process, and returns how to kill it once it has said a word.
func victim(t *testing.T, database, word, stall string) (kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestVictim$")
	cmd.Env = append(os.Environ(), victimVariable+"="+database, stallVariable+"="+stall)
	cmd.Stderr = os.Stderr
	output, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan struct{})
	go func() {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			if lines.Text() == word {
				close(said)
				return
			}
		}
	}()
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	receive(t, said)
	return func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
	}
}

// TestEventsOfAKilledProjectionAreAppliedOnce kills a process that has applied some events of
// a batch, at different places: they are applied again, and only once.
// Promise: projection
func TestEventsOfAKilledProjectionAreAppliedOnce(t *testing.T) {
	t.Parallel()
	for name, database := range map[string]string{"postgres": testdb.PostgresDSN(t), "sqlite": filepath.Join(t.TempDir(), "test.db")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, openAny(t, database))
			l.fill(3, 30)
			for _, position := range []string{"1", "19", "37"} {
				before := l.count("SELECT count(*) FROM applied")
				victim(t, database, "stalled", position)()
				if n := l.count("SELECT count(*) FROM applied"); n < before || n > 30 {
					t.Errorf("events applied after a kill: got %d, want between %d and 30", n, before)
				}
			}
			l.catchUp(l.runner(balances()))
			l.mustFold("")
			if n := l.count("SELECT count(*) FROM applied"); n != 30 {
				t.Errorf("events applied: got %d, want each of 30 once", n)
			}
		})
	}
}

// TestAKillInTheCommit kills a process whose commit is under way. It may succeed:
// the server learns of the end of its client only later.
func TestAKillInTheCommit(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	l := newLedger(t, testdb.OpenPostgres(t, dsn))
	l.fill(3, 30)
	testapp.OK(t, l.runner(balances()).Check(l.ctx))
	l.exec(`CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF current_setting('application_name') = 'victim' THEN PERFORM pg_advisory_xact_lock(4711); END IF; RETURN NULL; END $$`)
	l.exec(`CREATE CONSTRAINT TRIGGER linger AFTER UPDATE ON event_subscriptions DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION linger()`)
	holder := testapp.Must[bun.Tx](t)(l.db.BeginTx(l.ctx, nil))
	testapp.OK(t, testapp.Second(holder.NewRaw("SELECT pg_advisory_xact_lock(4711)").Exec(l.ctx)))
	kill := victim(t, dsn+"&application_name=victim", "runs", "")
	eventually(t, "a commit lingers", func() bool {
		return l.count("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'victim' AND wait_event = 'advisory'") == 1
	})
	kill()
	testapp.OK(t, holder.Commit())
	l.catchUp(l.runner(balances()))
	l.mustFold("")
	if n := l.count("SELECT count(*) FROM applied"); n != 30 {
		t.Errorf("events applied: got %d, want each of 30 once", n)
	}
}

// TestDumpAndRestore has a log go on in another database, from a backup that was
// taken in the middle: events without a position, a projection that is behind.
func TestDumpAndRestore(t *testing.T) {
	t.Parallel()
	for name, restore := range map[string]func(t *testing.T) (l *ledger, into func() *bun.DB){"postgres": restorePostgres,
		"sqlite": restoreSQLite} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, into := restore(t)
			l.fill(3, 20)
			l.catchUp(l.runner(balances()))
			last := l.append("account-0", eventlog.AnyVersion, moved{5}) // neither numbered nor applied
			l = &ledger{newApp(t, into())}
			if events := l.stream("account-0"); events[len(events)-1].Sequence != last.Sequence {
				t.Errorf("last event: got %d, want %d", events[len(events)-1].Sequence, last.Sequence)
			}
			if _, err := l.try("account-0", eventlog.ExpectedVersion(last.Version-1), moved{1}); err == nil {
				t.Error("append at an old version: got no error")
			}
			next := l.append("account-0", eventlog.ExpectedVersion(last.Version), moved{6})
			if next.Sequence <= last.Sequence {
				t.Errorf("sequence number: got %d after %d", next.Sequence, last.Sequence)
			}
			l.fill(3, 20)
			l.catchUp(l.runner(balances()))
			l.mustFold("")
			for i, e := range l.all(eventlog.Filter{}) {
				if e.Position != int64(i+1) {
					t.Fatalf("event %d: got position %d", i, e.Position)
				}
			}
			if n := l.count("SELECT count(*) FROM applied"); n != 42 {
				t.Errorf("events applied: got %d, want each of 42 once", n)
			}
		})
	}
}

func restoreSQLite(t *testing.T) (l *ledger, into func() *bun.DB) {
	dir := t.TempDir()
	l = newLedger(t, testdb.OpenSQLite(t, filepath.Join(dir, "old.db")))
	return l, func() *bun.DB {
		restored := filepath.Join(dir, "new.db")
		l.exec("VACUUM INTO ?", restored)
		return testdb.OpenSQLite(t, restored)
	}
}

func restorePostgres(t *testing.T) (l *ledger, into func() *bun.DB) {
	for _, program := range []string{"pg_dump", "psql"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%s is not installed: it comes with the clients of PostgreSQL, postgresql-client in Debian", program)
		}
	}
	dsn := testdb.PostgresDSN(t)
	l = newLedger(t, testdb.OpenPostgres(t, dsn))
	return l, func() *bun.DB {
		restored := testdb.DirectDSN(t) // a pooler would keep the session in which psql has set an empty search_path
		dump := filepath.Join(t.TempDir(), "dump.sql")
		for _, args := range [][]string{
			{"pg_dump", "--clean", "--if-exists", "--dbname", plain(t, dsn), "--file", dump},
			{"psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--dbname", plain(t, restored), "--file", dump, "--output", os.DevNull},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			output, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
			cancel()
			if err != nil {
				t.Fatalf("%s: %v: %s", args[0], err, output)
			}
		}
		return testdb.OpenPostgres(t, restored)
	}
}

// plain is a DSN without what is for our driver alone.
func plain(t *testing.T, dsn string) string {
	t.Helper()
	parsed := testapp.Must[*url.URL](t)(url.Parse(dsn))
	query := parsed.Query()
	query.Del("default_query_exec_mode")
	parsed.RawQuery = query.Encode()
	return parsed.String()
}
