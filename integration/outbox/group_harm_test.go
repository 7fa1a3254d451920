package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
)

// layered runs the messages of a below a layer of the application's own, which
// wraps only the first run of message 7.
func layered(a *app, layer bus.Middleware) *testapp.Running {
	a.Helper()
	config := once()
	config.Middleware = middleware.Default(middleware.Options{Middleware: []bus.Middleware{func(next bus.Handler) bus.Handler {
		odd := layer(next)
		return func(ctx context.Context, m *bus.Message) error {
			if m.Attempt == 1 && strings.Contains(string(m.Payload), `"n":7}`) {
				return odd(ctx, m)
			}
			return next(ctx, m)
		}
	}}})
	return a.Start(config)
}

// A layer that does not wait for the one below is wrong. It must harm nobody else,
// and find out.
func TestAGroupBelowALayerThatDoesNotWait(t *testing.T) {
	t.Parallel()
	a := grouped(t, testdb.Postgres(t), 20, nothing)
	late, returned := make(chan struct{}), make(chan error, 1)
	r := layered(a, func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Message) error {
			go func() { <-late; returned <- next(ctx, m) }()
			return errors.New("no patience")
		}
	})
	testapp.Eventually(t, "all are settled", a.Empty)
	close(late)
	if err := <-returned; err == nil || !strings.Contains(err.Error(), "must wait until next has returned") {
		t.Errorf("the late call: got %v, want to be told", err)
	}
	r.MustStop()
	requireEffects(a, 20, map[string]string{"7": "[2]"})
}

func TestAGroupBelowALayerThatCallsTwiceAtOnce(t *testing.T) {
	t.Parallel()
	a := grouped(t, testdb.Postgres(t), 20, nothing)
	r := layered(a, func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Message) error {
			errs := make(chan error, 2)
			for range 2 {
				go func() { errs <- next(ctx, m) }()
			}
			return errors.Join(<-errs, <-errs)
		}
	})
	testapp.Eventually(t, "all are settled", a.Empty)
	r.MustStop()
	requireEffects(a, 20, nil)
}

// harmOnce does something before the first query with a text in it.
type harmOnce struct {
	match string
	do    func()
	done  atomic.Bool
}

func (h *harmOnce) BeforeQuery(ctx context.Context, event *bun.QueryEvent) context.Context {
	if strings.Contains(event.Query, h.match) && h.done.CompareAndSwap(false, true) {
		h.do()
	}
	return ctx
}

func (h *harmOnce) AfterQuery(context.Context, *bun.QueryEvent) {}

// The statements of a group run on no chain's goroutine, and query hooks with them.
func TestAGroupMeetsAQueryHookThatDoesNotReturn(t *testing.T) {
	t.Parallel()
	for _, match := range []string{"FOR UPDATE OF m", "SAVEPOINT", `DELETE FROM "consumer_messages" WHERE id IN`} {
		for name, do := range map[string]func(){"an end of the goroutine": runtime.Goexit, "a panic": func() { panic("hook") }} {
			t.Run(name+" before "+match, func(t *testing.T) {
				t.Parallel()
				a := grouped(t, testdb.Postgres(t), 20, nothing)
				watcher := *a
				a.DB = a.DB.WithQueryHook(&harmOnce{match: match, do: do})
				r := a.Start(once())
				testapp.Eventually(t, "all are settled", watcher.Empty)
				r.MustStop()
				if got := len(effectsOf(&watcher)); got != 20 {
					t.Errorf("messages with effects: got %d, want 20", got)
				}
			})
		}
	}
}

// A handler that ends the transaction of its group each time holds up nobody else.
func TestAGroupOutlivesItsTransaction(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(ctx context.Context, tx bun.Tx) error{
		"rows that stay open": func(ctx context.Context, tx bun.Tx) error {
			rows, err := tx.QueryContext(ctx, "SELECT generate_series(1, 100000)")
			if err == nil {
				rows.Next()
			}
			return err
		},
		"a lost connection": func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewRaw("SELECT pg_terminate_backend(pg_backend_pid())").Exec(ctx)
			return err
		},
		"a lost connection that it hides": func(ctx context.Context, tx bun.Tx) error {
			_, _ = tx.NewRaw("SELECT pg_terminate_backend(pg_backend_pid())").Exec(ctx)
			return nil
		},
		"a timeout for the others": func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewRaw("SET LOCAL statement_timeout = 1").Exec(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := grouped(t, testdb.Postgres(t), 20, func(ctx context.Context, tx bun.Tx, o order) error {
				if o.N == 7 {
					return harm(ctx, tx)
				}
				return nil
			})
			r := a.Start(once())
			testapp.Eventually(t, "the others are consumed", func() bool { return len(a.Pending()) <= 1 })
			r.MustStop()
		})
	}
}

// SQLite answers some errors by rolling back the whole transaction. When a handler
// hides such an error, what it and others have written is gone, and must not count.
func TestNothingIsRemovedFromATransactionThatSQLiteRolledBack(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(ctx context.Context, tx bun.Tx){
		"a conflict": func(ctx context.Context, tx bun.Tx) {
			_, _ = tx.NewRaw("INSERT OR ROLLBACK INTO numbers VALUES (1), (1)").Exec(ctx)
		},
		"an interrupted write": func(ctx context.Context, tx bun.Tx) {
			ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond) // it has begun by then
			defer cancel()
			_, _ = tx.NewRaw(`INSERT INTO numbers
				WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 1000000000) SELECT x FROM n`).Exec(ctx)
		},
	} {
		for _, n := range []int{1, 20} {
			t.Run(fmt.Sprint(name, " among ", n), func(t *testing.T) {
				t.Parallel()
				bad := min(7, n-1)
				a := grouped(t, testdb.SQLite(t), n, func(ctx context.Context, tx bun.Tx, o order) error {
					if m, _ := bus.MessageFromContext(ctx); o.N == bad && m.Attempt == 1 {
						harm(ctx, tx)
					}
					return nil
				})
				a.Exec("CREATE TABLE numbers (n int UNIQUE)")
				r := a.Start(once())
				testapp.Eventually(t, "all are settled", a.Empty)
				r.MustStop()
				requireEffects(a, n, map[string]string{fmt.Sprint(bad): "[2]"})
			})
		}
	}
}

// Rolling back waits for the statement that a handler is in, whether it was abandoned
// there or the driver has cut its connection. Neither the others of its group nor the
// results of other messages may wait with it.
func TestAHandlerEndsInAStatement(t *testing.T) {
	t.Parallel()
	const waits = "SELECT n FROM wanted FOR UPDATE"
	contexts := map[string]func(context.Context) context.Context{
		"which ignores its context": context.WithoutCancel,
		"which heeds its context":   func(ctx context.Context) context.Context { return ctx },
	}
	mariadb := func(t testing.TB) *bun.DB {
		return testdb.OpenMariaDB(t, testdb.MariaDBDSN(t, "innodb_lock_wait_timeout=3600")) // as others wait by themselves
	}
	for database, open := range map[string]func(testing.TB) *bun.DB{"postgres": testdb.Postgres, "mariadb": mariadb} {
		for what, of := range contexts {
			for _, n := range []int{1, 20} {
				t.Run(fmt.Sprint(database, " ", what, " among ", n), func(t *testing.T) {
					t.Parallel()
					ended := make(chan error, 1)
					a := grouped(t, open(t), n, func(ctx context.Context, tx bun.Tx, o order) error {
						if m, _ := bus.MessageFromContext(ctx); o.N == min(7, n-1) && m.Attempt == 1 {
							_, err := tx.NewRaw(waits).Exec(of(ctx))
							ended <- err
							return err
						}
						return nil
					}, bus.Timeout(time.Second))
					a.Exec("CREATE TABLE wanted (n int)")
					a.Exec("INSERT INTO wanted VALUES (1)")
					holder := testapp.Must[bun.Tx](t)(a.DB.BeginTx(t.Context(), nil))
					t.Cleanup(func() { _ = holder.Rollback() })
					testapp.Must[sql.Result](t)(holder.NewRaw(waits).Exec(t.Context()))
					r := a.Start(once())
					testapp.Eventually(t, "all are settled", a.Empty)
					if err := <-ended; err == nil {
						t.Error("the statement of the handler: got nil, want it ended")
					}
					testapp.Eventually(t, "no statement is left", func() bool { return atWork(t, a.DB, waits) == 0 })
					r.MustStop()
					requireEffects(a, n, map[string]string{fmt.Sprint(min(7, n-1)): "[2]"})
				})
			}
		}
	}
}

// atWork counts sessions of this database that are at work on a statement.
func atWork(t *testing.T, db *bun.DB, statement string) (n int) {
	t.Helper()
	query := "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND query = ?"
	if db.Dialect().Name() == dialect.MySQL {
		query = "SELECT count(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND INFO = ?"
	}
	testapp.OK(t, db.NewRaw(query, statement).Scan(t.Context(), &n))
	return n
}
