package ops_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// doctor is what a viewer hears.
func doctor(t *testing.T, ctx context.Context, db *bun.DB, registry *bus.Registry) []ops.Finding {
	t.Helper()
	return testapp.Must[[]ops.Finding](t)(operator.As(serviceOf(t, db, registry), someone(ops.Viewer)).Doctor(ctx))
}

// findingsOf are those of a check.
func findingsOf(all []ops.Finding, check string) (found []ops.Finding) {
	for _, f := range all {
		if f.Check == check {
			found = append(found, f)
		}
	}
	return found
}

// wantFinding is the one finding of a check, which must be as bad and say that, with a cure.
func wantFinding(t *testing.T, all []ops.Finding, check string, severity ops.Severity, says ...string) {
	t.Helper()
	found := findingsOf(all, check)
	if len(found) != 1 || found[0].Severity != severity || (found[0].Remedy == "") != (severity == ops.OK) {
		t.Errorf("%s: got %+v, want one %s with a cure unless it is fine", check, found, severity)
		return
	}
	for _, text := range says {
		if said := found[0].Subject + ": " + found[0].Text + " " + found[0].Remedy; !strings.Contains(said, text) {
			t.Errorf("%s: got %q, want %q in it", check, said, text)
		}
	}
}

func isMariaDB(db *bun.DB) bool { return db.Dialect().Name() == dialect.MySQL }

// later is a context under which the database's clock is ahead by a time.
func later(t *testing.T, d time.Duration) context.Context {
	return store.WithClock(t.Context(), func() time.Time { return time.Now().Add(d) })
}

// TestDoctorFindsNothing: what is looked at is listed, the same on a database that is well.
func TestDoctorFindsNothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		checks := []string{"schema", "server", "safety", "pool", "connections", "indexes", "dead_rows", "snapshots", "clock", "poisoned",
			"blocked_keys", "consumers", "circuit_breakers", "processes", "schedules", "pauses", "operations", "projections"}
		if db.Dialect().Name() == dialect.SQLite {
			checks = []string{"schema", "server", "safety", "pool", "indexes", "clock", "poisoned", "blocked_keys", "consumers",
				"circuit_breakers", "processes", "schedules", "pauses", "operations", "projections"}
		}
		all := doctor(t, t.Context(), db, a.Registry)
		var got []string
		for _, f := range all {
			got = append(got, f.Check)
			if f.Check == "connections" || f.Check == "snapshots" { // the server has other tests
				continue
			}
			if f.Severity != ops.OK || f.Text == "" || f.Remedy != "" {
				t.Errorf("got %+v, want it fine", f)
			}
		}
		if len(got) != len(checks) {
			t.Errorf("got %q, want %q", got, checks)
		}
	})
}

// TestDoctorLooksAtTables: without them, or with old ones, that is the problem, and not what follows.
func TestDoctorLooksAtTables(t *testing.T) {
	t.Parallel()
	testdb.EachEmpty(t, func(t *testing.T, db *bun.DB) {
		registry := testapp.Must[*bus.Registry](t)(bus.NewRegistry(testapp.Consumed("c")))
		all := doctor(t, t.Context(), db, registry)
		wantFinding(t, all, "schema", ops.Critical, "migrate")
		for _, f := range all[1:] {
			if f.Severity == ops.Warning && strings.Contains(f.Text, "The check could not run") {
				t.Errorf("got %+v, want nothing of what has no tables", f)
			}
		}
		a := testapp.New(t, db, testapp.Consumed("c"))
		a.Exec("UPDATE asyncmonolith_migrations SET version = 0")
		all = doctor(t, t.Context(), db, registry)
		wantFinding(t, all, "schema", ops.Critical, "version 0, version 1")
	})
}

// TestDoctorLooksAtIndexes: one that is gone, and on PostgreSQL one whose making was interrupted.
func TestDoctorLooksAtIndexes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		drop := "DROP INDEX poisoned_messages_newest"
		if isMariaDB(db) {
			drop += " ON poisoned_messages"
		}
		a.Exec(drop)
		wantFinding(t, doctor(t, t.Context(), db, a.Registry), "indexes", ops.Critical, "poisoned_messages_newest: ", "missing",
			"(poisoned_at, id)")
		if db.Dialect().Name() != dialect.PG {
			return
		}
		a.Exec("INSERT INTO message_crashes (row_id, consumer_type, owner, solo, crashed_at) SELECT 1, 'c', 'o', true, now() FROM generate_series(1, 2)")
		if _, err := db.ExecContext(t.Context(),
			"CREATE UNIQUE INDEX CONCURRENTLY poisoned_messages_newest ON message_crashes (row_id)"); err == nil {
			t.Fatal("the index was made, which cannot be")
		}
		wantFinding(t, doctor(t, t.Context(), db, a.Registry), "indexes", ops.Critical, "poisoned_messages_newest: ", "invalid")
	})
}

// TestDoctorLooksAtSettings: those that are refused, and those that cost safety.
func TestDoctorLooksAtSettings(t *testing.T) {
	t.Parallel()
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		dsn := testdb.MariaDBDSN(t)
		a := testapp.New(t, testdb.OpenMariaDB(t, dsn), testapp.Consumed("c"))
		weak := testdb.OpenMariaDB(t, dsn+"?sql_mode='ANSI'&sql_safe_updates=1")
		found := findingsOf(doctor(t, t.Context(), weak, a.Registry), "server")
		if len(found) != 2 || found[0].Severity != ops.Critical || !strings.Contains(found[0].Text+found[1].Text, "sql_safe_updates is on") {
			t.Errorf("got %+v, want two problems", found)
		}
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		db := testdb.OpenPostgres(t, testdb.PostgresDSN(t, "synchronous_commit=off"))
		a := testapp.New(t, db, testapp.Consumed("c"))
		wantFinding(t, doctor(t, t.Context(), db, a.Registry), "safety", ops.Warning, "synchronous_commit is off",
			"Set synchronous_commit to on.")
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		db := testdb.OpenSQLiteWith(t, t.TempDir()+"/weak.db", "_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=synchronous(OFF)")
		a := testapp.New(t, db, testapp.Consumed("c"))
		all := doctor(t, t.Context(), db, a.Registry)
		wantFinding(t, all, "server", ops.Critical, "WAL is needed")
		wantFinding(t, all, "safety", ops.Critical, "synchronous is OFF")
	})
}

// TestDoctorLooksAtSnapshots: a transaction is old once it is, and is named without what it does.
func TestDoctorLooksAtSnapshots(t *testing.T) {
	t.Parallel()
	hold := func(t *testing.T, db *bun.DB, begin ...string) (pid int64) {
		t.Helper()
		conn := testapp.Must[bun.Conn](t)(db.Conn(t.Context()))
		t.Cleanup(func() { _ = conn.Close() })
		for _, statement := range begin {
			testapp.OK(t, testapp.Second(conn.ExecContext(t.Context(), statement)))
		}
		id := "pg_backend_pid()"
		if isMariaDB(db) {
			id = "CONNECTION_ID()"
		}
		testapp.OK(t, conn.NewRaw("SELECT "+id).Scan(t.Context(), &pid))
		return pid
	}
	named := func(all []ops.Finding, pid int64) (found []ops.Finding) {
		for _, f := range findingsOf(all, "snapshots") {
			if strings.HasPrefix(f.Subject, fmt.Sprintf("pid %d", pid)) {
				found = append(found, f)
			}
		}
		return found
	}
	look := func(t *testing.T, db *bun.DB, pid int64) string {
		t.Helper()
		a := testapp.New(t, db, testapp.Consumed("c"))
		if found := named(doctor(t, t.Context(), db, a.Registry), pid); len(found) > 0 {
			t.Errorf("a young snapshot: got %+v, want none", found)
		}
		// InnoDB shows the same transactions until they have not been looked at for 100 ms, by other tests either.
		var found []ops.Finding
		testapp.Poll(t, "the snapshot is shown", 20*time.Second, 150*time.Millisecond, func() bool {
			found = named(doctor(t, later(t, 3*time.Hour), db, a.Registry), pid)
			return len(found) > 0
		})
		if len(found) != 1 || found[0].Severity != ops.Warning || !strings.Contains(found[0].Text, "for 3 hours") ||
			strings.Contains(fmt.Sprint(found), "secret") {
			t.Fatalf("an old snapshot: got %+v, want a warning of 3 hours", found)
		}
		return found[0].Subject
	}
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		db := testdb.OpenMariaDB(t, testdb.MariaDBDSN(t, "time_zone='+05:00'"))
		look(t, db, hold(t, db, "START TRANSACTION WITH CONSISTENT SNAPSHOT"))
	})
	for name, begin := range map[string][]string{
		"reading": {"BEGIN ISOLATION LEVEL REPEATABLE READ", "SET LOCAL application_name = 'a report'", "SELECT 'secret' FROM pg_class LIMIT 1"},
		"writing": {"CREATE TABLE t (id int)", "BEGIN ISOLATION LEVEL READ COMMITTED", "SET LOCAL application_name = 'a report'",
			"INSERT INTO t VALUES (1)"},
	} {
		t.Run("postgres "+name, func(t *testing.T) {
			t.Parallel()
			dsn := testdb.DirectDSN(t)
			mode := map[bool]string{true: "&", false: "?"}[strings.Contains(dsn, "?")] +
				"default_query_exec_mode=simple_protocol" // else a portal keeps a snapshot
			db := testdb.OpenPostgres(t, dsn+mode)
			if subject := look(t, db, hold(t, db, begin...)); !strings.HasSuffix(subject, "a report") {
				t.Errorf("got %q, want the application", subject)
			}
		})
	}
}

// TestDoctorLooksAtDeadRows: of PostgreSQL's tables, while somebody keeps them.
func TestDoctorLooksAtDeadRows(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	a := testapp.New(t, db, testapp.Consumed("c"))
	a.Exec("ALTER TABLE consumer_messages SET (autovacuum_enabled = off)")
	a.Fill(60_000, "order.placed")
	a.Exec("DELETE FROM consumer_messages")
	testapp.Eventually(t, "the statistics tell", func() bool {
		return a.Count("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'consumer_messages'") >= 60_000
	})
	// Sessions that the database has from an earlier test may report a few rows late.
	wantFinding(t, doctor(t, t.Context(), db, a.Registry), "dead_rows", ops.Warning, "consumer_messages: 6000", " dead rows and ", "VACUUM")
}

// TestDoctorLooksAtTheClock: a skew is said with its size.
func TestDoctorLooksAtTheClock(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		for ahead, want := range map[time.Duration]struct {
			severity ops.Severity
			says     string
		}{10 * time.Second: {ops.Warning, " behind the database's"}, -2 * time.Minute: {ops.Critical,
			"clock is 2m0"}, time.Millisecond: {ops.OK, "within"}} {
			wantFinding(t, doctor(t, later(t, ahead), db, a.Registry), "clock", want.severity, want.says)
		}
	})
}

// TestDoctorLooksAtConsumers: messages that no live process takes, by consumer and by payload type.
func TestDoctorLooksAtConsumers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		overview := func() []admin.Unhandled {
			t.Helper()
			return testapp.Must[operator.Overview](t)(operator.As(serviceOf(t, db, a.Registry), someone(ops.Viewer)).Overview(t.Context())).Unhandled
		}
		a.ProduceMany(1)
		wantFinding(t, doctor(t, t.Context(), db, a.Registry), "consumers", ops.Warning, "c: ", "no processor has reported")
		p := a.Start(testapp.Fast())
		testapp.Eventually(t, "the message is done", a.Empty)
		testapp.Eventually(t, "it has told of itself", func() bool { return a.Count("SELECT count(*) FROM message_processes") == 1 })
		wantFinding(t, doctor(t, t.Context(), db, a.Registry), "consumers", ops.OK)
		if found := overview(); len(found) != 0 {
			t.Errorf("unhandled: got %+v, want none", found)
		}
		a.Exec("INSERT INTO consumer_messages (message_id, consumer_type, payload_type, payload, created_at, available_after) VALUES ('00000000-0000-0000-0000-000000000001', 'c', 'order.lost', '{}', " + testapp.NowOf(db) + ", " + testapp.NowOf(db) + ")")
		wantFinding(t, doctor(t, t.Context(), db, a.Registry), "consumers", ops.Critical, "c: ", `"order.lost"`)
		if found := overview(); len(found) != 1 || found[0] != (admin.Unhandled{Consumer: "c", PayloadType: "order.lost"}) {
			t.Errorf("unhandled: got %+v, want one of c", found)
		}
		p.MustStop()
		a.Exec("DELETE FROM consumer_messages")
		a.ProduceMany(1)
		wantFinding(t, doctor(t, t.Context(), db, a.Registry), "consumers", ops.Critical, "c: ", `"order.placed"`)
		a.Exec("DELETE FROM consumer_messages")
		testapp.New(t, db, testapp.Consumed("keyed", bus.Ordered(bus.SkipPoisoned))).Produce(order{}, outbox.OrderingKey("k"))
		wantFinding(t, doctor(t, t.Context(), db, a.Registry), "consumers", ops.Critical, "keyed: ", "with keys")
	})
}

// TestDoctorLooksAtProcesses: one that was not seen for a minute and has not stopped.
func TestDoctorLooksAtProcesses(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		p := a.Start(testapp.Fast())
		testapp.Eventually(t, "it has told of itself", func() bool { return a.Count("SELECT count(*) FROM message_processes") == 1 })
		wantFinding(t, doctor(t, t.Context(), db, a.Registry), "processes", ops.OK)
		p.MustStop()
		a.Exec(`UPDATE message_processes SET state = '{"stuck": ["c"], "open_circuits": ["c"]}'`) // as it was when it stopped
		wantFinding(t, doctor(t, t.Context(), db, a.Registry), "processes", ops.OK)
		a.Exec("UPDATE message_processes SET stopped_at = NULL, seen_at = " + testapp.In(db, -time.Minute))
		wantFinding(t, doctor(t, t.Context(), db, a.Registry), "processes", ops.Warning, "Lost, last seen ", " ago: processor.", "pid ",
			"messages list --crashed")
		a.Exec("INSERT INTO message_processes (id, kind, host, pid, program, version, started_at, seen_at, manifest, state) SELECT 'other', 'scheduler', host, pid, program, version, started_at, seen_at, manifest, state FROM message_processes")
		if found := findingsOf(doctor(t, t.Context(), db, a.Registry), "processes"); len(found) != 1 ||
			!strings.Contains(found[0].Text, ": processor and scheduler. Other processes") {
			t.Errorf("got %+v, want one finding for one program", found)
		}
		a.Exec("DELETE FROM message_processes WHERE id = 'other'")
		a.Exec("UPDATE message_processes SET kind = 'relays'")
		wantFinding(t, doctor(t, t.Context(), db, a.Registry), "processes", ops.Warning, " ago: runner of relays.",
			"before it drained.")
		a.Exec("UPDATE message_processes SET seen_at = " + testapp.In(db, -25*time.Hour))
		wantFinding(t, doctor(t, t.Context(), db, a.Registry), "processes", ops.OK)
	})
}

// TestDoctorLooksAtThePool: one that is enough for a run, and not for two.
func TestDoctorLooksAtThePool(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		wantFinding(t, doctor(t, t.Context(), db, a.Registry), "pool", ops.OK, "Nothing in this process needs")
		a.Start(testapp.Fast())
		testapp.Eventually(t, "it has told of itself", func() bool { return a.Count("SELECT count(*) FROM message_processes") == 1 })
		wantFinding(t, doctor(t, t.Context(), db, a.Registry), "pool", ops.OK, "large enough")
		var text []byte
		testapp.OK(t, db.NewRaw("SELECT manifest FROM message_processes").Scan(t.Context(), &text))
		var told struct{ Connections int }
		if err := json.Unmarshal(text, &told); err != nil || told.Connections < 1 {
			t.Fatalf("got %s, want its connections", text)
		}
		for i := range db.Stats().MaxOpenConnections/told.Connections + 1 {
			a.Exec("INSERT INTO message_processes (id, kind, host, pid, program, version, started_at, seen_at, manifest, state) SELECT ?, kind, host, pid, program, version, started_at, "+testapp.In(db, time.Hour)+", manifest, state FROM message_processes WHERE id NOT LIKE 'other%'", fmt.Sprint("other", i))
		}
		wantFinding(t, doctor(t, t.Context(), db, a.Registry), "pool", ops.Warning, "SetMaxOpenConns")
	})
}

// TestDoctorLooksAtSchedules: those that are overdue, have failed, or have no fire.
func TestDoctorLooksAtSchedules(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		id := testapp.Must[int64](t)(a.Scheduler().Upsert(t.Context(), db, order{}, "@hourly", "UTC", schedule.Name("report")))
		set := func(columns string, args ...any) {
			t.Helper()
			a.Exec("UPDATE scheduled_messages SET last_error = NULL, paused = FALSE, cron_expression = '@hourly', available_after = "+
				testapp.In(db, time.Hour)+" WHERE id = ?", id)
			a.Exec("UPDATE scheduled_messages SET "+columns+" WHERE id = ?", append(args, id)...)
		}
		for columns, says := range map[string]string{
			"available_after = " + testapp.In(db,
				-5*time.Minute): `Overdue by 5 minutes. No live process fires schedules of payload type "order.placed"`,
			"last_error = 'a secret'":                "The last fire failed",
			"cron_expression = 'every now and then'": "is invalid",
			"cron_expression = '0 0 0 30 2 *'":       "is invalid, or never fires again",
		} {
			set(columns)
			all := doctor(t, t.Context(), db, a.Registry)
			wantFinding(t, all, "schedules", ops.Critical, "report: ", says)
			if strings.Contains(fmt.Sprint(all), "secret") {
				t.Errorf("got %+v, want no text of an error", all)
			}
			set(strings.Join([]string{columns, "paused = TRUE"}, ", "))
			wantFinding(t, doctor(t, t.Context(), db, a.Registry), "schedules", ops.OK)
		}
		set("available_after = " + testapp.In(db, -30*time.Second))
		wantFinding(t, doctor(t, t.Context(), db, a.Registry), "schedules", ops.OK)
	})
}

// TestDoctorLooksAtPauses: one that is old, if messages wait.
func TestDoctorLooksAtPauses(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		s := operator.As(serviceOf(t, db, a.Registry), someone(ops.Operator))
		testapp.OK(t, s.Consumers().Pause(t.Context(), "c", "burns"))
		a.ProduceMany(3)
		wantFinding(t, doctor(t, t.Context(), db, a.Registry), "pauses", ops.OK)
		a.Exec("UPDATE paused_consumers SET paused_at = " + testapp.In(db, -49*time.Hour))
		wantFinding(t, doctor(t, t.Context(), db, a.Registry), "pauses", ops.Warning, "c: ", "by ada for 2 days", "Waiting messages: 3")
		a.Exec("DELETE FROM consumer_messages")
		wantFinding(t, doctor(t, t.Context(), db, a.Registry), "pauses", ops.OK)
	})
}

// TestDoctorLooksAtOperations: those that have stopped themselves, that nobody ends, and that nobody begins.
func TestDoctorLooksAtOperations(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 3, testapp.Consumed("c"))
		s := operator.As(serviceOf(t, db, a.Registry), someone(ops.Administrator))
		o := planned(t, s, ops.Requeue, ofConsumer("c"))
		_ = testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Reason: "fixed"}))
		wantFinding(t, doctor(t, t.Context(), db, a.Registry), "operations", ops.OK)
		for columns, says := range map[string]string{
			"state = 'paused'": "Paused itself",
			"state = 'started', created_at = " + testapp.In(db, -20*time.Minute): "Started 20 minutes ago",
			"state = 'waiting', starts_at = " + testapp.In(db, -20*time.Minute):  "Due for 20 minutes",
		} {
			a.Exec("UPDATE message_operations SET " + columns)
			wantFinding(t, doctor(t, t.Context(), db, a.Registry), "operations", ops.Warning,
				fmt.Sprintf("operation %d (requeue by ada)", o.ID), says)
		}
		a.Exec("UPDATE message_operations SET state = 'running', leased_by = 'r', leased_until = " + testapp.In(db, time.Second))
		wantFinding(t, doctor(t, t.Context(), db, a.Registry), "operations", ops.OK)
	})
}

// TestDoctorWithoutPrivileges: what a user may not look at is said, and the rest is looked at.
func TestDoctorWithoutPrivileges(t *testing.T) {
	t.Parallel()
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		db := testdb.MariaDB(t)
		a := testapp.New(t, db, testapp.Consumed("c"))
		var name string
		testapp.OK(t, db.NewRaw("SELECT DATABASE()").Scan(t.Context(), &name))
		a.Exec("CREATE USER " + name + "@localhost IDENTIFIED BY 'p'")
		t.Cleanup(func() { a.Exec("DROP USER " + name + "@localhost") })
		a.Exec("GRANT SELECT ON " + name + ".* TO " + name + "@localhost")
		config := testapp.Must[*mysql.Config](t)(mysql.ParseDSN(os.Getenv(testdb.MariaDBVariable)))
		config.User, config.Passwd, config.DBName = name, "p", name
		all := testapp.Must[[]ops.Finding](t)(operator.As(serviceOf(t, testdb.OpenMariaDB(t, config.FormatDSN()),
			a.Registry), someone(ops.Operator)).Doctor(t.Context()))
		wantFinding(t, all, "snapshots", ops.Warning, "The check could not run", "PROCESS")
		wantFinding(t, all, "indexes", ops.OK)
		wantFinding(t, all, "operations", ops.OK)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		dsn := testdb.DirectDSN(t)
		db := testdb.OpenPostgres(t, dsn)
		a := testapp.New(t, db, testapp.Consumed("c"))
		role := "viewer_" + strings.ToLower(rand.Text()[:12])
		a.Exec("CREATE ROLE " + role)
		t.Cleanup(func() { a.Exec("DROP OWNED BY " + role); a.Exec("DROP ROLE " + role) })
		a.Exec("GRANT SELECT ON ALL TABLES IN SCHEMA public TO " + role)
		tx := testapp.Must[bun.Tx](t)(db.BeginTx(t.Context(), nil)) // of a user whose sessions are hidden
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(t.Context(),
			"DELETE FROM paused_consumers; INSERT INTO paused_consumers (consumer_type, paused_at) VALUES ('d', now())"); err != nil {
			t.Fatal(err)
		}
		limited := testdb.OpenPostgres(t, dsn)
		limited.SetMaxOpenConns(1)
		testapp.OK(t, testapp.Second(limited.ExecContext(t.Context(), "SET ROLE "+role)))
		for _, f := range doctor(t, later(t, time.Hour), limited, a.Registry) {
			if strings.Contains(f.Text, "The check could not run") {
				t.Errorf("got %+v, want it looked at", f)
			}
		}
	})
}

// TestDoctorGoesOn: a check that fails by itself is a warning, and a database that is away an error.
func TestDoctorGoesOn(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		a.Exec("ALTER TABLE message_operations RENAME TO elsewhere")
		a.Exec("CREATE TABLE message_operations (id int)")
		all := doctor(t, t.Context(), db, a.Registry)
		wantFinding(t, all, "operations", ops.Warning, "The check could not run")
		wantFinding(t, all, "pauses", ops.OK)
		s := operator.As(serviceOf(t, db, a.Registry), someone(ops.Viewer))
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Doctor(over); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: got error %v, want that", err)
		}
		_ = db.Close()
		if found, err := s.Doctor(t.Context()); err == nil {
			t.Errorf("away: got %+v, want an error", found)
		}
	})
}
