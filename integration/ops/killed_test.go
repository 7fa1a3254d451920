package ops_test

import (
	"context"
	"database/sql"
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
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

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

// killOne starts a process, and kills it while it is at work. Nobody waits for its lease.
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
