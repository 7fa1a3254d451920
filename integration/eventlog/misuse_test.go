package eventlog_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// TestAProjectionThatBreaksItsTransactionIsCounted: its function returns no error, but its transaction cannot be committed. The
// event is parked, and its effects are not repeated without end.
func TestAProjectionThatBreaksItsTransactionIsCounted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		misuse func(ctx context.Context, tx bun.Tx) error
		reason string
		atMost int64 // runs
		leaves int   // rows that the function has committed itself
	}{
		"rolls back": {func(_ context.Context, tx bun.Tx) error { return tx.Rollback() }, "only the library may end it", 4, 0},
		"commits":    {func(_ context.Context, tx bun.Tx) error { return tx.Commit() }, "only the library may end it", 4, 4},
		"rolls back in SQL": {func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewRaw("ROLLBACK").Exec(ctx)
			return err
		}, "cannot be committed", 12, 0},
		"breaks a deferred constraint": {func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewRaw("INSERT INTO children VALUES (1)").Exec(ctx)
			return err
		}, "cannot be committed", 12, 0},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			eachWithForeignKeys(t, func(t *testing.T, db *bun.DB) {
				l := newLedger(t, db)
				l.exec("CREATE TABLE parents (id int PRIMARY KEY)")
				l.exec("CREATE TABLE children (parent int REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)")
				var runs atomic.Int64
				p := balances()
				p.OnError, p.MaxAttempts = projection.Park, 2
				p.On = []projection.Handler{projection.On(func(ctx context.Context, tx bun.Tx, e moved) error {
					if _, err := tx.NewRaw("INSERT INTO applied VALUES ('account-1', ?, '')", e.Amount).Exec(ctx); err != nil || e.Amount != 2 {
						return err
					}
					runs.Add(1)
					return c.misuse(ctx, tx)
				})}
				l.append("account-1", eventlog.AnyVersion, moved{1}, moved{2}, moved{3}, moved{4})
				r := l.runner(p)
				running(t, "runner", r.Run)
				eventually(t, "the shard is at the end", func() bool { return l.count("SELECT COALESCE(MAX(position), 0) FROM event_subscriptions") == 4 })
				var reason sql.NullString
				if err := l.db.NewRaw("SELECT reason FROM event_parked WHERE position = 2").Scan(l.ctx, &reason); err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(reason.String, c.reason) {
					t.Errorf("reason: got %q, want it to contain %q", reason.String, c.reason)
				}
				if n := runs.Load(); n > c.atMost {
					t.Errorf("runs: got %d, want at most %d", n, c.atMost)
				}
				if n := l.count("SELECT count(*) FROM applied WHERE version = 2"); n > c.leaves {
					t.Errorf("rows of the function: got %d, want at most %d", n, c.leaves)
				}
				if health := r.Health(); health.Err != nil {
					t.Errorf("health: got %v, want no outage", health.Err)
				}
			})
		})
	}
}

// eachWithForeignKeys is testdb.EachWithEvents with a SQLite that checks foreign keys.
func eachWithForeignKeys(t *testing.T, test func(t *testing.T, db *bun.DB)) {
	t.Run("postgres", func(t *testing.T) { t.Parallel(); test(t, testdb.Postgres(t)) })
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, testdb.OpenSQLiteWith(t, filepath.Join(t.TempDir(), "test.db"),
			"_txlock=immediate&_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)&_pragma=foreign_keys(1)"))
	})
}
