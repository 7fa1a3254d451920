package store_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/logaccess"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// Migrations only ever add: columns of a later version, whatever their names, stop nothing.
func TestColumnsOfALaterVersionStopNothing(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var sound atomic.Bool
		var runs, events atomic.Int64
		a := testapp.New(t, db,
			bus.Consume("plain", func(context.Context, order) error {
				if !sound.Load() {
					return errors.New("not yet")
				}
				runs.Add(1)
				return nil
			}, bus.MaxAttempts(2)),
			outbox.ConsumeTx("tx", func(context.Context, bun.Tx, order) error { runs.Add(1); return nil }))
		for _, table := range tablesOf(a) {
			for _, column := range []string{"added_later", "reason", "consumer", "new_errors", "now", "mid"} {
				const has = "SELECT count(*) FROM (SELECT 1 AS x) x WHERE ? IN ('poisoned_messages', 'consumed_messages', 'event_parked', 'message_operations')"
				if column == "reason" && a.Count(has, table) == 1 {
					continue // it is there
				}
				if a.DB.Dialect().Name() == dialect.MySQL {
					column = "`" + column + "`"
				}
				a.Exec("ALTER TABLE " + table + " ADD COLUMN " + column + " varchar(10) DEFAULT 'x'")
			}
		}
		if err := outbox.Migrate(t.Context(), db, a.Registry.Tables()); err != nil {
			t.Fatalf("migrate again: %v", err)
		}
		a.Produce(order{ID: "1"}, outbox.InsertID("once"))
		a.Produce(order{ID: "2"})
		scheduler := testapp.Must[*schedule.Scheduler](t)(schedule.NewScheduler(a.Registry, schedule.SchedulerConfig{}))
		id := testapp.Must[int64](t)(scheduler.Upsert(t.Context(), db, order{ID: "3"}, "@yearly", "UTC", schedule.Name("n")))
		testapp.OK(t, scheduler.Trigger(t.Context(), db, id))
		if list, _, err := scheduler.List(t.Context(), db, schedule.Filter{}, admin.Page{}); err != nil || len(list) != 1 {
			t.Errorf("schedules: got %d, error %v", len(list), err)
		}
		fires := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(db, a.Registry, a.Producer, schedule.ProcessorConfig{}))
		if n, err := fires.FireDue(t.Context()); err != nil || n != 1 {
			t.Fatalf("fire: got %d, error %v", n, err)
		}
		a.Start(testapp.Fast())
		testapp.Eventually(t, "the messages are poisoned", func() bool { return len(a.Poisoned()) == 3 })
		testapp.Eventually(t, "the others are consumed", a.Empty)
		client := testapp.Must[*admin.Client](t)(admin.NewClient(a.Registry))
		if _, err := client.Queues(t.Context(), db); err != nil {
			t.Errorf("queues: %v", err)
		}
		if _, _, err := client.List(t.Context(), db, admin.Filter{}, admin.Page{}); err != nil {
			t.Errorf("list: %v", err)
		}
		poisoned := testapp.Must[*poison.Store](t)(poison.NewStore(a.Registry))
		if list, _, err := poisoned.List(t.Context(), db, poison.Filter{}, admin.Page{}); err != nil || len(list) != 3 {
			t.Errorf("poisoned: got %d, error %v", len(list), err)
		}
		sound.Store(true)
		if result, err := poisoned.RequeueWhere(t.Context(), db, poison.Filter{}, 10); err != nil || result.Requeued != 3 {
			t.Fatalf("requeue: got %+v, error %v", result, err)
		}
		testapp.Eventually(t, "everything is consumed", func() bool { return a.Empty() && runs.Load() == 6 })
		if a.DB.Dialect().Name() == dialect.MySQL {
			return
		}
		types := testapp.Must[*eventlog.Types](t)(eventlog.NewTypes(eventlog.Event[refund]()))
		registry, err := bus.RegistryConfig{Events: types}.NewRegistry(bus.Consume("reactor",
			func(context.Context, refund) error { events.Add(1); return nil }))
		if err != nil {
			t.Fatal(err)
		}
		appendAndConsume(a, registry, &events)
	})
}

// appendAndConsume goes through the calls of the event log.
func appendAndConsume(a *app, registry *bus.Registry, events *atomic.Int64) {
	a.Helper()
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{})
	if err != nil {
		a.Fatal(err)
	}
	log, err := eventlog.NewLog(registry, producer, eventlog.LogConfig{})
	if err != nil {
		a.Fatal(err)
	}
	err = log.RunInTx(a.Context(), a.DB, func(ctx context.Context, tx bun.Tx) error {
		if _, err := log.Append(ctx, tx, "refund-1", eventlog.NoStream, refund{ID: "1"}); err != nil {
			return err
		}
		return logaccess.SaveSnapshot(ctx, log, tx, "refund-1", "kind", store.Snapshot{Version: 1, State: []byte("{}")})
	})
	if err != nil {
		a.Fatalf("append: %v", err)
	}
	runner, err := projection.NewRunner(a.DB, log, projection.RunnerConfig{},
		projection.Projection{Name: "p", OnError: projection.Park, MaxAttempts: 1,
			On: []projection.Handler{projection.On(func(context.Context, bun.Tx, refund) error { return bus.Permanent(errors.New("no")) })}})
	if err != nil {
		a.Fatal(err)
	}
	for range 2 {
		_, _ = runner.CatchUp(a.Context()) // the first one tells of the event that fails
	}
	if parked, err := runner.Parked(a.Context(), "p", 10); err != nil || len(parked) != 1 {
		a.Errorf("parked: got %d, error %v", len(parked), err)
	}
	if _, err := log.Replay(a.Context(), a.DB, eventlog.Replay{Name: "r", Consumer: "reactor"}); err != nil {
		a.Errorf("replay: %v", err)
	}
	if _, found, err := logaccess.Snapshot(a.Context(), log, a.DB, "refund-1", "kind"); err != nil || !found {
		a.Errorf("snapshot: got %t, error %v", found, err)
	}
	config := testapp.Fast()
	processor, err := outbox.NewProcessor(a.DB, registry, config)
	if err != nil {
		a.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for events.Load() < 2 && time.Now().Before(deadline) {
		if _, err := processor.ProcessNext(a.Context()); err != nil {
			a.Fatalf("step: %v", err)
		}
	}
	if n := events.Load(); n != 2 {
		a.Errorf("the reactor: got %d runs, want the event and its replay", n)
	}
}

// tablesOf returns the names of the library's tables, those of migrations left out.
func tablesOf(a *app) (names []string) {
	a.Helper()
	query := "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
	switch a.DB.Dialect().Name() {
	case dialect.PG:
		query = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
	case dialect.MySQL:
		query = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"
	}
	testapp.OK(a, a.DB.NewRaw(query).Scan(a.Context(), &names))
	return names
}

// TestErrorsNameTablesWithTheirSchema: whoever has several looks in the right one.
func TestErrorsNameTablesWithTheirSchema(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	db := testdb.Postgres(t)
	registry := testapp.Must[*bus.Registry](t)(bus.RegistryConfig{Tables: bus.Tables{Schema: "shop",
		Prefix: "am_"}}.NewRegistry(testapp.Counting("c", &n)))
	p := testapp.Must[*outbox.Processor](t)(outbox.NewProcessor(db, registry, outbox.ProcessorConfig{}))
	says := func(want string) {
		t.Helper()
		if err := p.Check(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("check: got %v, want it to name %s", err, want)
		}
	}
	says("there is no table shop.am_asyncmonolith_migrations")
	a := &app{T: t, DB: db}
	a.Exec("CREATE SCHEMA shop")
	testapp.OK(t, outbox.Migrate(t.Context(), db, registry.Tables()))
	a.Exec("ALTER TABLE shop.am_scheduled_messages RENAME TO gone")
	says("table shop.am_scheduled_messages is missing, although the version in shop.am_asyncmonolith_migrations requires it")
	a.Exec("UPDATE shop.am_asyncmonolith_migrations SET version = 0")
	says("the tables of shop.am_asyncmonolith_migrations have version 0")
}

// TestLargePayloadsAreCompressedWithLZ4 where the server has it: that takes less than half of its time.
func TestLargePayloadsAreCompressedWithLZ4(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var known bool
	if err := db.NewRaw("SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression' UNION ALL SELECT false LIMIT 1").
		Scan(t.Context(), &known); err != nil {
		t.Fatal(err)
	}
	want := 0
	if known {
		want = 5
	}
	var n int
	// The column is read as JSON: version 13 does not have it.
	err := db.NewRaw("SELECT count(*) FROM pg_attribute a WHERE to_jsonb(a) ->> 'attcompression' = 'l' AND a.attname IN ('payload', 'data', 'state')").
		Scan(t.Context(), &n)
	if err != nil || n != want {
		t.Errorf("got %d columns compressed with lz4, %v, want %d", n, err, want)
	}
}
