package eventlog_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

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
