package outbox_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/schema"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

func goexit() { runtime.Goexit() }

func TestRunRefusesAMissingOrOlderSchema(t *testing.T) {
	t.Parallel()
	testdb.EachEmpty(t, func(t *testing.T, db *bun.DB) {
		registry := testapp.Must[*bus.Registry](t)(bus.NewRegistry())
		processor := testapp.Must[*outbox.Processor](t)(outbox.NewProcessor(db, registry, outbox.ProcessorConfig{}))
		if err := processor.Run(t.Context()); !errors.Is(err, outbox.ErrSchemaOutdated) || !strings.Contains(err.Error(), "run outbox.Migrate") {
			t.Errorf("without tables: got %v, want ErrSchemaOutdated and its cure", err)
		}
		a := testapp.New(t, db)
		a.Exec("DELETE FROM asyncmonolith_migrations")
		if err := processor.Run(t.Context()); !errors.Is(err, outbox.ErrSchemaOutdated) || !strings.Contains(err.Error(), "version 0") {
			t.Errorf("with older tables: got %v, want ErrSchemaOutdated and the versions", err)
		}
		a.Exec("INSERT INTO asyncmonolith_migrations (version, applied_at) VALUES (99, CURRENT_TIMESTAMP)")
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "it runs on newer tables", func() bool { return r.Health().Ready })
		r.MustStop()
	})
}

// TestMigrateNeedsNoRightsWithNothingToDo: a program may migrate at every start as a role that cannot create tables.
func TestMigrateNeedsNoRightsWithNothingToDo(t *testing.T) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		for _, schema := range []string{"", "jobs"} {
			dsn := testdb.DirectDSN(t) // a pooler would give the role to others
			owner, tables := testdb.OpenPostgres(t, dsn), bus.Tables{Schema: schema}
			testapp.OK(t, outbox.Migrate(t.Context(), owner, tables))
			role, in := "app_"+strings.ToLower(rand.Text()[:12]), cmp.Or(schema, "public")
			execute(t, owner, "CREATE ROLE "+role, "GRANT USAGE ON SCHEMA "+in+" TO "+role, "GRANT SELECT ON ALL TABLES IN SCHEMA "+in+" TO "+role)
			t.Cleanup(func() {
				for _, statement := range []string{"DROP OWNED BY " + role, "DROP ROLE " + role} {
					if _, err := owner.ExecContext(context.WithoutCancel(t.Context()), statement); err != nil {
						t.Error(err)
					}
				}
			})
			app := testdb.OpenPostgres(t, dsn)
			app.SetMaxOpenConns(1)
			execute(t, app, "SET ROLE "+role)
			if _, err := app.ExecContext(t.Context(), "CREATE TABLE "+in+".mine (id int)"); err == nil {
				t.Errorf("schema %s: the role can create tables", in)
			}
			if err := outbox.Migrate(t.Context(), app, tables); err != nil {
				t.Errorf("schema %s: got %v, want nil", in, err)
			}
		}
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		dsn := testdb.MariaDBDSN(t)
		config := testapp.Must[*mysql.Config](t)(mysql.ParseDSN(dsn))
		owner, user := testdb.OpenMariaDB(t, dsn), "app_"+strings.ToLower(rand.Text()[:12])
		testapp.OK(t, outbox.Migrate(t.Context(), owner, bus.Tables{}))
		execute(t, owner, "CREATE USER "+user+"@'%' IDENTIFIED BY 'secret'", "CREATE USER "+user+"@'localhost' IDENTIFIED BY 'secret'",
			"GRANT SELECT ON "+config.DBName+".* TO "+user+"@'%', "+user+"@'localhost'")
		t.Cleanup(func() {
			if _, err := owner.ExecContext(context.WithoutCancel(t.Context()), "DROP USER "+user+"@'%', "+user+"@'localhost'"); err != nil {
				t.Error(err)
			}
		})
		config.User, config.Passwd = user, "secret"
		if err := outbox.Migrate(t.Context(), testdb.OpenMariaDB(t, config.FormatDSN()), bus.Tables{}); err != nil {
			t.Errorf("got %v, want nil", err)
		}
	})
}

func TestRunReportsADatabaseThatIsDown(t *testing.T) {
	t.Parallel()
	conns := testapp.Must[*sql.DB](t)(sql.Open("pgx", "postgres://postgres@127.0.0.1:1/nowhere?connect_timeout=2"))
	defer conns.Close()
	registry := testapp.Must[*bus.Registry](t)(bus.NewRegistry())
	processor, err := outbox.NewProcessor(bun.NewDB(conns, pgdialect.New()), registry, outbox.ProcessorConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := processor.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "outbox: run: the database cannot be reached: ") {
		t.Errorf("got %v, want a clear error", err)
	}
	if health := processor.Health(); health.Ready || health.Err == nil {
		t.Errorf("health: got %+v, want not ready and the error", health)
	}
}

// TestHealthTellsWhyAStartWaits for the database.
func TestHealthTellsWhyAStartWaits(t *testing.T) {
	t.Parallel()
	db := bun.NewDB(testapp.Must[*sql.DB](t)(sql.Open("pgx", "postgres://postgres@127.0.0.1:1/nowhere")), pgdialect.New())
	defer db.Close()
	registry := testapp.Must[*bus.Registry](t)(bus.NewRegistry(testapp.Consumed("c")))
	p := testapp.Must[*outbox.Processor](t)(outbox.NewProcessor(db, registry, outbox.ProcessorConfig{StartTimeout: time.Hour}))
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- p.Run(ctx) }()
	testapp.Poll(t, "the error", time.Minute, 10*time.Millisecond, func() bool { return errors.Is(p.Health().Err, syscall.ECONNREFUSED) })
	if p.Health().Ready {
		t.Error("health: got ready, want it not")
	}
	stop()
	testapp.OK(t, <-stopped)
}

func TestUnknownDialectIsRefused(t *testing.T) {
	t.Parallel()
	registry := testapp.Must[*bus.Registry](t)(bus.NewRegistry(bus.Consume("c", func(context.Context, order) error { return nil })))
	db := bun.NewDB(testdb.SQLite(t).DB, unknownDialect{pgdialect.New()})
	want := "use one of pg, sqlite"
	if _, err := outbox.NewProcessor(db, registry, outbox.ProcessorConfig{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("NewProcessor: got %v, want the known dialects listed", err)
	}
	if err := outbox.Migrate(t.Context(), db, bus.Tables{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Migrate: got %v, want the known dialects listed", err)
	}
	producer := testapp.Must[*outbox.Producer](t)(outbox.NewProducer(registry, outbox.ProducerConfig{}))
	if _, err := producer.Produce(t.Context(), db, order{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Produce: got %v, want the known dialects listed", err)
	}
}

type unknownDialect struct{ schema.Dialect }

func (unknownDialect) Name() dialect.Name { return dialect.Oracle }

func TestRunTwiceAtOnceIsRefused(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := testapp.New(t, db, testapp.Counting("c", &n))
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "it runs", func() bool { return r.Health().Ready })
		if err := r.Run(t.Context()); !errors.Is(err, bus.ErrRunning) {
			t.Errorf("second Run: got %v, want ErrRunning", err)
		}
		r.MustStop()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		a.Produce(order{ID: "1"})
		testapp.Eventually(t, "it runs again after a stop", func() bool { return n.Load() == 1 && a.Empty() })
		stop()
		if err := <-done; err != nil {
			t.Errorf("run: got %v, want a clean stop", err)
		}
	})
}

// TestSQLiteInMemory: every connection to a plain database in memory has one of its
// own, and those of vfs=memdb share theirs.
func TestSQLiteInMemory(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"shared": "/" + t.Name(), "private": ":memory:"} {
		query := "_txlock=immediate&_pragma=busy_timeout(5000)"
		if name == "shared" {
			query += "&vfs=memdb"
		}
		a := testapp.New(t, testdb.OpenSQLiteWith(t, path, query))
		processor, err := outbox.NewProcessor(a.DB, a.Registry, outbox.ProcessorConfig{})
		if err != nil {
			t.Fatal(err)
		}
		err = processor.Check(t.Context())
		if refused := err != nil && strings.Contains(err.Error(),
			"so every connection has its own"); refused != (name == "private") || err != nil && !refused {
			t.Errorf("%s: got %v, want an error for the private one alone", name, err)
		}
	}
}

func TestSQLiteSettingsAreReadBack(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, query, want string }{
		{"no WAL", "_pragma=busy_timeout(5000)", "open the database with _pragma=journal_mode(WAL)"},
		{"no busy_timeout", "_pragma=journal_mode(WAL)", "open the database with _pragma=busy_timeout(15000)"},
		{"a misspelt pragma", "_pragma=journal_mode(WAL)&_pragma=bussy_timeout(5000)", "busy_timeout 0 ms"},
		{"both wrong, the first", "_pragma=busy_timeout(10)", "journal_mode"},
		{"both wrong, the second", "_pragma=busy_timeout(10)", "busy_timeout 10 ms"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a := testapp.New(t, testdb.OpenSQLiteWith(t, t.TempDir()+"/test.db", test.query))
			processor := testapp.Must[*outbox.Processor](t)(outbox.NewProcessor(a.DB, a.Registry, outbox.ProcessorConfig{}))
			if err := processor.Run(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			schedules := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(a.DB, a.Registry, a.Producer, schedule.ProcessorConfig{}))
			if err := schedules.Check(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("schedules: got %v, want %q", err, test.want)
			}
		})
	}
	t.Run("a transactional timeout above busy_timeout", func(t *testing.T) {
		t.Parallel()
		db := testdb.OpenSQLiteWith(t, t.TempDir()+"/test.db", "_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
		a := testapp.New(t, db, outbox.ConsumeTx("stock", func(context.Context, bun.Tx, order) error { return nil }, bus.Timeout(10*time.Second)))
		processor := testapp.Must[*outbox.Processor](t)(outbox.NewProcessor(a.DB, a.Registry, outbox.ProcessorConfig{}))
		if err := processor.Run(t.Context()); err == nil || !strings.Contains(err.Error(), `"stock": Timeout 10s`) {
			t.Errorf("got %v, want the consumer's timeout refused", err)
		}
	})
}

func TestLostConnectionsAreReplacedQuietly(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	killer := testdb.OpenPostgres(t, dsn)
	var done, lines atomic.Int64
	a := testapp.New(t, testdb.OpenPostgres(t, dsn), bus.Consume("c", func(context.Context, order) error { done.Add(1); return nil }))
	started := time.Now()
	config := testapp.Fast()
	config.Logger = slog.New(countingHandler{&lines})
	config.Middleware = middleware.Default(middleware.Options{Logger: slog.New(slog.DiscardHandler)})
	r := a.Start(config)
	testapp.Eventually(t, "it has started", func() bool { return r.Health().Ready })
	for i := range 10 {
		_, err := killer.ExecContext(t.Context(),
			"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
		if err != nil {
			t.Fatal(err)
		}
		before := done.Load()
		testapp.Eventually(t, "a produce gets through", func() bool {
			_, err := a.Producer.Produce(t.Context(), killer, order{ID: fmt.Sprint(i)})
			return err == nil
		})
		testapp.Eventually(t, "it is consumed", func() bool { return done.Load() > before })
	}
	testapp.Eventually(t, "nothing is left", a.Empty)
	r.MustStop()
	if most := int64(2 * (time.Since(started)/time.Second + 1)); lines.Load() > most {
		t.Errorf("log lines: got %d, want at most %d: one a second for errors, one for each recovery", lines.Load(), most)
	}
}

// countingHandler counts what is logged.
type countingHandler struct{ lines *atomic.Int64 }

func (h countingHandler) Enabled(context.Context, slog.Level) bool  { return true }
func (h countingHandler) Handle(context.Context, slog.Record) error { h.lines.Add(1); return nil }
func (h countingHandler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h countingHandler) WithGroup(string) slog.Handler             { return h }

// TestEveryDefaultIsolation runs the pipe under each default isolation level:
// the library's own statements must not depend on it.
func TestEveryDefaultIsolation(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			dsn := testdb.PostgresDSN(t, testdb.Isolation(level))
			var ordinary, transactional atomic.Int64
			var lines testapp.Lines
			a := testapp.New(t, testdb.OpenPostgres(t, dsn), testapp.Counting("ordinary", &ordinary),
				outbox.ConsumeTx("transactional", func(context.Context, bun.Tx, order) error { transactional.Add(1); return nil }))
			config := testapp.Fast()
			config.Logger = lines.Logger()
			config.Middleware = middleware.Default(middleware.Options{Logger: slog.New(slog.DiscardHandler)})
			r, other := a.Start(config), a.Start(config)
			for range 10 {
				a.ProduceMany(30)
			}
			testapp.Eventually(t, "everything is consumed", a.Empty)
			r.MustStop()
			other.MustStop()
			if ordinary.Load() != 300 || transactional.Load() != 300 {
				t.Errorf("runs: got %d and %d, want 300 each", ordinary.Load(), transactional.Load())
			}
			if logged := lines.String(); strings.Contains(logged, "level=WARN") || strings.Contains(logged, "level=ERROR") {
				t.Errorf("the processors logged, though no conflict may surface:\n%s", logged)
			}
		})
	}
}

func TestStatsTellWhatWaits(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		gate := make(chan struct{})
		a := testapp.New(t, db, failing("bad", &n, bus.MaxAttempts(1)),
			bus.Consume("slow", func(context.Context, refund) error { <-gate; return nil }))
		for range 3 {
			a.Produce(order{ID: "1"})
		}
		a.Produce(refund{ID: "1"})
		a.Produce(refund{ID: "2"}, outbox.Delay(time.Hour))
		idle := testapp.Must[*outbox.Processor](t)(outbox.NewProcessor(db, a.Registry, outbox.ProcessorConfig{}))
		queues := func() map[string]admin.Queue {
			list := testapp.Must[[]admin.Queue](t)(idle.Queues(t.Context()))
			byName := map[string]admin.Queue{}
			for _, q := range list {
				byName[q.Consumer] = q
			}
			return byName
		}
		before := queues()
		if bad, slow := before["bad"], before["slow"]; bad.Ready != 3 || bad.Poisoned != 0 || slow.Ready != 1 || slow.Delayed != 1 ||
			bad.OldestReady <= 0 || bad.OldestPoisoned != 0 {
			t.Errorf("before: got %+v", before)
		}
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "three are poisoned and one runs", func() bool { return len(a.Poisoned()) == 3 && r.Stats().Running == 1 })
		after := queues()
		if bad, slow := after["bad"], after["slow"]; bad.Ready != 0 || bad.Poisoned != 3 || bad.OldestPoisoned <= 0 || slow.Ready != 0 ||
			slow.Leased != 1 || slow.Delayed != 1 {
			t.Errorf("after: got %+v", after)
		}
		close(gate)
		r.MustStop()
		if stats := r.Stats(); stats.Claimed != 4 || stats.Claims < 1 || stats.Running != 0 || stats.Limit != 64 || stats.Fenced != 0 {
			t.Errorf("stats: got %+v, want 4 claimed", stats)
		}
	})
}
