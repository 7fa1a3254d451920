package handles_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/decider"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/pgxtx"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// call is something that an application does in its transaction.
type call struct {
	name string
	do   func(ctx context.Context, h bus.Handle) error
}

// callsOf are all kinds of calls, of an application with one poisoned message and one schedule.
func callsOf(t *testing.T, db *bun.DB) (calls []call) {
	t.Helper()
	config := bus.RegistryConfig{Dialect: db.Dialect()}
	events := db.Dialect().Name() != dialect.MySQL
	if events {
		config.Events = must(eventlog.NewTypes(eventlog.Event[moved]()))(t)
	}
	registry := must(config.NewRegistry(testapp.Consumed("one"), testapp.Consumed("two")))(t)
	must(0, outbox.Migrate(t.Context(), db, registry.Tables()))(t)
	producer := must(outbox.NewProducer(registry, outbox.ProducerConfig{}))(t)
	scheduler := must(schedule.NewScheduler(registry, schedule.SchedulerConfig{}))(t)
	client, store := must(admin.NewClient(registry))(t), must(poison.NewStore(registry))(t)
	scheduled := must(scheduler.Upsert(t.Context(), db, order{}, "@daily", "UTC", schedule.Name("first")))(t)
	calls = []call{
		{"Produce", func(ctx context.Context, h bus.Handle) error { _, err := producer.Produce(ctx, h, order{}); return err }},
		{"Produce an insert id", func(ctx context.Context, h bus.Handle) error {
			_, err := producer.Produce(ctx, h, order{}, outbox.InsertID("i"))
			return err
		}},
		{"ProduceMany", func(ctx context.Context, h bus.Handle) error {
			_, err := producer.ProduceMany(ctx, h, two("j")...)
			return err
		}},
		{"Upsert", func(ctx context.Context, h bus.Handle) error {
			_, err := scheduler.Upsert(ctx, h, order{}, "@hourly", "UTC", schedule.Name("hourly"))
			return err
		}},
		{"Sync", func(ctx context.Context, h bus.Handle) error {
			return scheduler.Sync(ctx, h, "tag", schedule.Spec{Name: "daily", Payload: order{}, Expression: "@daily", Zone: "UTC"})
		}},
		{"DeleteByID", func(ctx context.Context, h bus.Handle) error { return scheduler.DeleteByID(ctx, h, scheduled) }},
		{"UpdateSchedule", func(ctx context.Context, h bus.Handle) error {
			return scheduler.UpdateSchedule(ctx, h, scheduled, "@hourly", "UTC")
		}},
		{"Trigger", func(ctx context.Context, h bus.Handle) error { return scheduler.Trigger(ctx, h, scheduled) }},
		{"admin.Pause", func(ctx context.Context, h bus.Handle) error { return client.Pause(ctx, h, "one", admin.PauseNote{}) }},
		{"poison.Purge", func(ctx context.Context, h bus.Handle) error { _, err := store.Purge(ctx, h, time.Hour); return err }},
		{"poison.RequeueWhere", func(ctx context.Context, h bus.Handle) error {
			_, err := store.RequeueWhere(ctx, h, poison.Filter{}, 10)
			return err
		}},
	}
	if !events {
		return calls
	}
	log := must(eventlog.NewLog(registry, producer, eventlog.LogConfig{}))(t)
	must(0, log.RunInTx(t.Context(), db, func(ctx context.Context, tx bun.Tx) error {
		_, err := log.Append(ctx, tx, "account-9", eventlog.NoStream, moved{1})
		return err
	}))(t)
	return append(calls,
		call{"Append", func(ctx context.Context, h bus.Handle) error {
			_, err := log.Append(ctx, h, "account-1", eventlog.AnyVersion, moved{1})
			return err
		}},
		call{"AppendAll", func(ctx context.Context, h bus.Handle) error {
			_, err := log.AppendAll(ctx, h, eventlog.Write{Stream: "account-2", Expected: eventlog.AnyVersion, Events: []bus.Payload{moved{1}}},
				eventlog.Write{Stream: "account-3", Expected: eventlog.AnyVersion, Events: []bus.Payload{moved{1}}})
			return err
		}},
		call{"Tombstone", func(ctx context.Context, h bus.Handle) error { return log.Tombstone(ctx, h, "account-9") }},
		call{"decider.Handle", func(ctx context.Context, h bus.Handle) error {
			_, _, err := decider.Handle(ctx, log, h, account(), "4", 10)
			return err
		}},
	)
}

// two are items, of which one has an insert id.
func two(id string) []outbox.Item {
	return []outbox.Item{{Payload: order{}}, {Payload: order{}, Options: []outbox.Option{outbox.InsertID(id)}}}
}

// contents is what the tables have.
func contents(t *testing.T, db *bun.DB) string {
	t.Helper()
	queries := []string{"SELECT count(*) FROM handles_effects", "SELECT count(*) FROM consumer_messages", "SELECT count(*) FROM scheduled_messages", "SELECT count(*) FROM paused_consumers"}
	if db.Dialect().Name() != dialect.MySQL {
		queries = append(queries, "SELECT count(*) FROM events", "SELECT count(*) FROM event_streams")
	}
	got := ""
	for _, q := range queries {
		var n int
		must(0, db.NewRaw(q).Scan(t.Context(), &n))(t)
		got += fmt.Sprintf("%s:%d ", q[21:], n)
	}
	return got
}

// TestCallsInAnyTransactionFailAlone: a call that fails leaves the transaction as it was, and so does a rollback.
func TestCallsInAnyTransactionFailAlone(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db *bun.DB, w world) {
		calls := callsOf(t, db)
		before := contents(t, db)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for _, c := range calls {
			tx := w.begin(t, db)
			write(t, tx, "a")
			if err := c.do(over, tx); !errors.Is(err, context.Canceled) {
				t.Errorf("%s with a context that is over: got %v, want context.Canceled", c.name, err)
			}
			if err := c.do(t.Context(), tx); err != nil {
				t.Errorf("%s after that: got %v, want no error", c.name, err)
			}
			must(0, tx.Rollback())(t)
			if err := c.do(t.Context(), tx); !errors.Is(err, sql.ErrTxDone) && !errors.Is(err, pgx.ErrTxClosed) {
				t.Errorf("%s in a transaction that is over: got %v, want ErrTxDone or ErrTxClosed", c.name, err)
			}
			if db.Dialect().Name() == dialect.PG {
				tx = w.begin(t, db)
				if _, err := tx.ExecContext(t.Context(), "SELECT * FROM no_such_table"); err == nil {
					t.Error("a statement without its table: got no error")
				}
				if err := c.do(t.Context(), tx); err == nil || !strings.Contains(err.Error(), "25P02") {
					t.Errorf("%s after a statement that failed: got %v, want an error of the transaction", c.name, err)
				}
				_ = tx.Rollback()
			}
			if got := contents(t, db); got != before {
				t.Errorf("%s, rolled back: got %s, want %s", c.name, got, before)
			}
		}
	})
}

// TestCallsBesideOpenRows name them, where the driver allows no other statement.
func TestCallsBesideOpenRows(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db *bun.DB, w world) {
		if w.name == "pgx.Tx" || db.Dialect().Name() == dialect.SQLite {
			return // see TestCallsInASavepointOfPgx
		}
		s := testapp.New(t, db, testapp.Consumed("c")).Scheduler()
		tx := w.begin(t, db)
		defer tx.Rollback() //nolint:errcheck // nothing is kept
		rows := must(tx.QueryContext(t.Context(), "SELECT 1 UNION ALL SELECT 2"))(t)
		defer rows.Close()
		rows.Next()
		_, err := s.Upsert(t.Context(), tx, order{}, "@daily", "UTC", schedule.Name("daily"))
		if want := "the connection is lost, or rows of the transaction are open"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	})
}

// TestCallsInASavepointOfPgx are taken back with it. Those beside open rows of pgx send nothing.
func TestCallsInASavepointOfPgx(t *testing.T) {
	t.Parallel()
	pool, db := onePool(t, 5)
	withEffects(t, db)
	calls := callsOf(t, db)
	before := contents(t, db)
	for _, c := range calls {
		must(0, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			inner := must(tx.Begin(t.Context()))(t)
			must(0, c.do(t.Context(), pgxtx.Of(inner)))(t)
			must(0, inner.Rollback(t.Context()))(t)
			if err := c.do(t.Context(), pgxtx.Of(inner)); !errors.Is(err, pgx.ErrTxClosed) {
				t.Errorf("%s in a savepoint that is over: got %v, want ErrTxClosed", c.name, err)
			}
			rows := must(tx.Query(t.Context(), "SELECT 1 UNION ALL SELECT 2"))(t)
			if err := c.do(t.Context(), pgxtx.Of(tx)); err == nil || !strings.Contains(err.Error(), "are open: close them first") {
				t.Errorf("%s beside open rows: got %v, want an error that says so", c.name, err)
			}
			if all, err := pgx.CollectRows(rows, pgx.RowTo[int]); err != nil || len(all) != 2 {
				t.Errorf("%s: the rows: got %v and %v, want 2", c.name, all, err)
			}
			inner = must(tx.Begin(t.Context()))(t)
			must(0, c.do(t.Context(), pgxtx.Of(inner)))(t)
			return inner.Rollback(t.Context())
		}))(t)
		if got := contents(t, db); got != before {
			t.Errorf("%s: got %s, want %s", c.name, got, before)
		}
	}
}

// TestProduceIsGivenUpInAnyTransaction, by the server's bounds, its end, or the context's deadline: nothing is written.
func TestProduceIsGivenUpInAnyTransaction(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db *bun.DB, w world) {
		if db.Dialect().Name() != dialect.PG {
			return
		}
		a := testapp.New(t, db, testapp.Consumed("one"))
		for how, want := range map[string]string{"killed": "", "statement_timeout": "57014", "lock_timeout": "55P03", "deadline": "deadline"} {
			ctx, cancel := context.WithCancel(t.Context())
			tx, blocker := w.begin(t, db), must(db.BeginTx(t.Context(), nil))(t)
			write(t, tx, "a")
			switch how {
			case "killed":
				must(db.NewRaw("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE '%handles_effects%' " +
					"AND datname = current_database()").Exec(ctx))(t)
			case "deadline":
				ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
			default:
				must(tx.ExecContext(ctx, "SET LOCAL "+how+" = '200ms'"))(t)
			}
			must(a.Producer.Produce(t.Context(), blocker, order{}, outbox.InsertID("x")))(t)
			_, err := a.Producer.ProduceMany(ctx, tx, two("x")...)
			cancel()
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want an error with %s", how, err, want)
			}
			if err := tx.Commit(); err == nil {
				t.Errorf("%s: the commit: got no error", how)
			}
			must(0, blocker.Rollback())(t)
			if got := counts(t, db); got != [2]int{} {
				t.Errorf("%s: got %v rows and messages, want none", how, got)
			}
		}
	})
}
