package txn_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// refuse has the database refuse to write rows that fulfil a condition.
func refuse(a *app, operation, table, condition string) {
	a.Helper()
	name := "refuse_" + strings.ToLower(operation) + "_" + table
	switch a.DB.Dialect().Name() {
	case dialect.PG:
		a.Exec(`CREATE OR REPLACE FUNCTION refuse() RETURNS trigger AS 'BEGIN RAISE EXCEPTION ''refused by the test''; END' LANGUAGE plpgsql`)
		a.Exec(fmt.Sprintf(`CREATE TRIGGER %s BEFORE %s ON %s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION refuse()`, name, operation, table,
			condition))
	case dialect.MySQL:
		a.Exec(fmt.Sprintf(`CREATE TRIGGER %s BEFORE %s ON %s FOR EACH ROW IF %s THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused by the test'; END IF`, name, operation, table, condition))
	default:
		a.Exec(fmt.Sprintf(`CREATE TRIGGER %s BEFORE %s ON %s WHEN %s BEGIN SELECT RAISE(ABORT, 'refused by the test'); END`, name,
			operation, table, condition))
	}
}

// contentOf is what the library's tables have in them, as text.
func contentOf(a *app) string {
	a.Helper()
	tables := []string{"consumer_messages", "message_claims", "poisoned_messages", "paused_consumers", "scheduled_messages"}
	if a.DB.Dialect().Name() == dialect.MySQL {
		tables = append(tables, "pending_insert_ids")
	}
	var all strings.Builder
	for _, table := range tables {
		var rows []map[string]any
		if err := a.DB.NewRaw("SELECT * FROM "+table+" ORDER BY 1, 2").Scan(a.Context(), &rows); err != nil {
			a.Fatalf("read %s: %v", table, err)
		}
		for _, row := range rows {
			fmt.Fprintf(&all, "%s %v\n", table, row)
		}
	}
	return all.String()
}

// A call that fails in the middle leaves nothing behind, and the transaction goes on.
// Promise: call-undone
func TestAFailedCallInACallersTransactionIsRolledBack(t *testing.T) {
	const many = 501 // more than one batch
	cases := []struct {
		name string
		// prepare returns what is called, which must fail.
		prepare func(a *app) func(ctx context.Context, tx bun.Tx) error
		not     dialect.Name // where it is refused anyway
	}{
		{name: "a layer that fails after what it wraps", prepare: func(a *app) func(context.Context, bun.Tx) error {
			late := func(next bus.ProduceFunc) bus.ProduceFunc {
				return func(ctx context.Context, b *bus.Batch) error {
					return errors.Join(next(ctx, b), errors.New("too late"))
				}
			}
			producer, err := outbox.NewProducer(a.Registry, outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{late}})
			if err != nil {
				a.Fatal(err)
			}
			return func(ctx context.Context, tx bun.Tx) error {
				_, err := producer.Produce(ctx, tx, order{ID: "1"}, outbox.InsertID("once"))
				return err
			}
		}},
		{name: "a layer that panics", prepare: func(a *app) func(context.Context, bun.Tx) error {
			late := func(next bus.ProduceFunc) bus.ProduceFunc {
				return func(ctx context.Context, b *bus.Batch) error {
					if err := next(ctx, b); err != nil {
						return err
					}
					panic("too late")
				}
			}
			producer, err := outbox.NewProducer(a.Registry, outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{late}})
			if err != nil {
				a.Fatal(err)
			}
			return func(ctx context.Context, tx bun.Tx) (err error) {
				defer func() { err = fmt.Errorf("%v", recover()) }()
				_, err = producer.Produce(ctx, tx, order{ID: "1"})
				return err
			}
		}},
		{name: "the second statement of a large batch", prepare: func(a *app) func(context.Context, bun.Tx) error {
			refuse(a, "INSERT", "consumer_messages", "NEW.payload LIKE '%bad%'")
			items := make([]outbox.Item, 1001)
			for i := range items {
				items[i] = outbox.Item{Payload: order{N: i}}
			}
			items[1000].Payload = order{ID: "bad"}
			return func(ctx context.Context, tx bun.Tx) error {
				_, err := a.Producer.ProduceMany(ctx, tx, items...)
				return err
			}
		}},
		{name: "an insert id", prepare: func(a *app) func(context.Context, bun.Tx) error {
			refuse(a, "INSERT", "consumer_messages", "NEW.payload LIKE '%bad%'")
			return func(ctx context.Context, tx bun.Tx) error {
				_, err := a.Producer.Produce(ctx, tx, order{ID: "bad"}, outbox.InsertID("once"))
				return err
			}
		}, not: dialect.PG}, // one statement, which the database takes back, and with it the transaction
		{name: "a replacement behind another message", not: dialect.MySQL, prepare: func(a *app) func(context.Context, bun.Tx) error {
			refuse(a, "INSERT", "consumer_messages", "NEW.payload LIKE '%bad%'")
			return func(ctx context.Context, tx bun.Tx) error {
				_, err := a.Producer.ProduceMany(ctx, tx, outbox.Item{Payload: order{ID: "1"}},
					outbox.Item{Payload: order{ID: "2"}, Options: []outbox.Option{outbox.InsertID("k1", outbox.Replace())}},
					outbox.Item{Payload: order{ID: "bad"}, Options: []outbox.Option{outbox.InsertID("k2", outbox.Replace())}})
				return err
			}
		}},
		{name: "cancel", not: dialect.MySQL, prepare: func(a *app) func(context.Context, bun.Tx) error {
			a.ProduceMany(many)
			refuse(a, "DELETE", "consumer_messages", fmt.Sprintf("OLD.payload LIKE '%%\"n\":%d}'", many-1))
			client := testapp.Must[*admin.Client](a)(admin.NewClient(a.Registry))
			return func(ctx context.Context, tx bun.Tx) error {
				result, err := client.Cancel(ctx, tx, idsOf(a, "consumer_messages")...)
				if result.Changed != 0 {
					a.Errorf("cancel: got %d changed, want none of a call that is taken back", result.Changed)
				}
				return err
			}
		}},
		{name: "requeue", prepare: func(a *app) func(context.Context, bun.Tx) error {
			poisonMany(a, many)
			refuse(a, "INSERT", "consumer_messages", fmt.Sprintf("NEW.payload LIKE '%%\"n\":%d}'", many-1))
			poisoned := poisonStore(a)
			return func(ctx context.Context, tx bun.Tx) error {
				result, err := poisoned.Requeue(ctx, tx, idsOf(a, "poisoned_messages")...)
				if result != (poison.Result{}) {
					a.Errorf("requeue: got %+v, want nothing of a call that is taken back", result)
				}
				return err
			}
		}},
		{name: "requeue where", prepare: func(a *app) func(context.Context, bun.Tx) error {
			poisonMany(a, many)
			refuse(a, "INSERT", "consumer_messages", fmt.Sprintf("NEW.payload LIKE '%%\"n\":%d}'", many-1))
			poisoned := poisonStore(a)
			return func(ctx context.Context, tx bun.Tx) error {
				_, err := poisoned.RequeueWhere(ctx, tx, poison.Filter{}, many)
				return err
			}
		}},
		{name: "edit and requeue", prepare: func(a *app) func(context.Context, bun.Tx) error {
			poisonMany(a, 1)
			refuse(a, "DELETE", "poisoned_messages", "1 = 1")
			poisoned := poisonStore(a)
			return func(ctx context.Context, tx bun.Tx) error {
				return poisoned.EditAndRequeue(ctx, tx, idsOf(a, "poisoned_messages")[0], order{ID: "edited"})
			}
		}},
		{name: "discard", prepare: func(a *app) func(context.Context, bun.Tx) error {
			poisonMany(a, many)
			refuse(a, "DELETE", "poisoned_messages", fmt.Sprintf("OLD.payload LIKE '%%\"n\":%d}'", many-1))
			poisoned := poisonStore(a)
			return func(ctx context.Context, tx bun.Tx) error {
				_, err := poisoned.Discard(ctx, tx, idsOf(a, "poisoned_messages")...)
				return err
			}
		}},
		{name: "purge", prepare: func(a *app) func(context.Context, bun.Tx) error {
			poisonMany(a, many)
			refuse(a, "DELETE", "poisoned_messages", fmt.Sprintf("OLD.payload LIKE '%%\"n\":%d}'", many-1))
			poisoned := poisonStore(a)
			return func(ctx context.Context, tx bun.Tx) error {
				_, err := poisoned.Purge(ctx, tx, 0)
				return err
			}
		}},
		{name: "schedule", prepare: func(a *app) func(context.Context, bun.Tx) error {
			scheduler := testapp.Must[*schedule.Scheduler](a)(schedule.NewScheduler(a.Registry, schedule.SchedulerConfig{}))
			id := testapp.Must[int64](a)(scheduler.Create(a.Context(), a.DB, order{}, "@daily", "UTC"))
			refuse(a, "UPDATE", "scheduled_messages", "1 = 1")
			return func(ctx context.Context, tx bun.Tx) error { return scheduler.Pause(ctx, tx, id) }
		}},
	}
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		for _, c := range cases {
			if db.Dialect().Name() == c.not {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				db := another(t, db)
				a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error { return nil }))
				a.Exec("CREATE TABLE notes (note int)")
				call := c.prepare(a)
				before := contentOf(a)
				err := a.Producer.RunInTx(t.Context(), db, func(ctx context.Context, tx bun.Tx) error {
					if err := call(ctx, tx); err == nil {
						t.Error("the call: got no error")
					}
					_, err := tx.NewRaw("INSERT INTO notes VALUES (1)").Exec(ctx)
					return err
				})
				if err != nil {
					t.Fatalf("go on after the error, and commit: %v", err)
				}
				if after := contentOf(a); after != before {
					t.Errorf("the tables after a call that failed:\n%.2000s\nwant what they were:\n%.2000s", after, before)
				}
				if n := a.Count("SELECT count(*) FROM notes"); n != 1 {
					t.Errorf("what the transaction wrote afterwards: got %d rows, want 1", n)
				}
			})
		}
	})
}

// another is an empty database of the same kind.
func another(t *testing.T, db *bun.DB) *bun.DB {
	switch db.Dialect().Name() {
	case dialect.PG:
		return testdb.Postgres(t)
	case dialect.MySQL:
		return testdb.MariaDB(t)
	}
	return testdb.SQLite(t)
}

func idsOf(a *app, table string) (ids []int64) {
	a.Helper()
	testapp.OK(a, a.DB.NewRaw("SELECT id FROM "+table+" ORDER BY id").Scan(a.Context(), &ids))
	return ids
}

func poisonStore(a *app) *poison.Store {
	a.Helper()
	poisoned := testapp.Must[*poison.Store](a)(poison.NewStore(a.Registry))
	return poisoned
}

// poisonMany writes poisoned messages.
func poisonMany(a *app, n int) {
	a.Helper()
	a.ProduceMany(n)
	a.Exec(`INSERT INTO poisoned_messages (id, message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, attempts, crashes, errors, poisoned_at, reason)
		SELECT id, message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after, 5, 0, NULL, ` +
		ago(a, time.Hour) + `, 'test' FROM consumer_messages ORDER BY id`)
	a.Exec("DELETE FROM consumer_messages")
}

// ago is an instant in the past, as the database stores instants.
func ago(a *app, d time.Duration) string {
	if a.DB.Dialect().Name() == dialect.PG {
		return fmt.Sprintf("%s - %d * interval '1 microsecond'", testapp.NowOf(a.DB), d.Microseconds())
	}
	return fmt.Sprintf("%s - %d", testapp.NowOf(a.DB), d.Microseconds())
}
