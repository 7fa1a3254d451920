package outbox_test

import (
	"context"
	"crypto/rand"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// tenants is a database with the library's tables, and those of the test, in two schemas,
// and a message in the second that nobody consumes. What it returns works in the first.
func tenants(t *testing.T, consumers ...bus.Consumer) *app {
	db := testdb.OpenPostgres(t, testdb.EmptyPostgresDSN(t, "search_path=tenant_a"))
	for _, schema := range []string{"tenant_a", "tenant_b"} {
		testapp.OK(t, testapp.Second(db.ExecContext(t.Context(), "CREATE SCHEMA "+schema)))
	}
	a := testapp.New(t, db, consumers...)
	b, err := bus.RegistryConfig{Tables: bus.Tables{Schema: "tenant_b"}}.NewRegistry(bus.Consume("theirs",
		func(context.Context, refund) error { return nil }))
	if err != nil {
		t.Fatal(err)
	}
	testapp.OK(t, outbox.Migrate(t.Context(), db, b.Tables()))
	a.Exec("CREATE TABLE effects (n int)")
	a.Exec("CREATE TABLE tenant_b.effects (n int)")
	producer := testapp.Must[*outbox.Producer](t)(outbox.NewProducer(b, outbox.ProducerConfig{}))
	testapp.OK(t, testapp.Second(producer.Produce(t.Context(), db, refund{ID: "precious"})))
	return a
}

// What a transactional consumer does to its search_path, or to its role, is its own
// affair: the message that is removed is the one it was given.
// Promise: search-path
func TestRemovalIgnoresTheSearchPathOfTheHandler(t *testing.T) {
	for name, settings := range map[string][]string{
		"search_path":                 {"SET LOCAL search_path = tenant_b"},
		"search_path of the session":  {"SET search_path = tenant_b"},
		"role without a privilege":    {"SET LOCAL ROLE %s", "SET LOCAL search_path = tenant_b"},
		"row security for the role":   {"SET LOCAL search_path = tenant_b", "SET LOCAL ROLE %s"},
		"group, search_path and role": {"SET LOCAL ROLE %s", "SET LOCAL search_path = tenant_b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			role := "r_" + strings.ToLower(rand.Text()[:12]) // it belongs to the server
			var runs atomic.Int64
			consume := func(ctx context.Context, tx bun.Tx, o order) error {
				runs.Add(1)
				for _, s := range settings {
					if _, err := tx.ExecContext(ctx, strings.ReplaceAll(s, "%s", role)); err != nil {
						return err
					}
				}
				_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (1)")
				return err
			}
			var options []bus.ConsumerOption
			if strings.HasPrefix(name, "group") {
				options = append(options, outbox.GroupCommit(8))
			}
			a := tenants(t, outbox.ConsumeTx("report", consume, options...))
			makeRole(a, role)
			if strings.HasPrefix(name, "row security") {
				a.Exec("ALTER TABLE consumer_messages ENABLE ROW LEVEL SECURITY")
				a.Exec("GRANT ALL ON ALL TABLES IN SCHEMA tenant_a TO " + role)
				a.Exec("GRANT USAGE ON SCHEMA tenant_a TO " + role)
			}
			const n = 10
			a.ProduceMany(n)
			processor := a.Start(testapp.Fast())
			testapp.Eventually(t, "the messages are consumed",
				func() bool { return a.Count("SELECT count(*) FROM tenant_a.consumer_messages") == 0 })
			if got := a.Count("SELECT count(*) FROM tenant_b.consumer_messages"); got != 1 {
				t.Errorf("messages of the other schema: got %d, want its 1", got)
			}
			if got, effects := runs.Load(), a.Count("SELECT count(*) FROM tenant_b.effects"); got != n || effects != n {
				t.Errorf("got %d runs and %d effects, want %d of both", got, effects, n)
			}
			if got := a.Count("SELECT count(*) FROM tenant_a.poisoned_messages"); got != 0 {
				t.Errorf("poisoned: got %d, want none", got)
			}
			processor.MustStop() // it has given its connections back
			everyConnectionIsIn(a, "tenant_a")
		})
	}
}

// everyConnectionIsIn asks all connections of the pool for their search_path: one that a
// consumer has left elsewhere would lead astray whoever is given it next.
func everyConnectionIsIn(a *app, schema string) {
	a.Helper()
	for range a.DB.Stats().OpenConnections { // each is held until all are asked
		conn := testapp.Must[bun.Conn](a)(a.DB.Conn(a.Context()))
		defer func() { _ = conn.Close() }()
		var path, role string
		testapp.OK(a, conn.QueryRowContext(a.Context(), "SELECT current_setting('search_path'), current_setting('role')").Scan(&path, &role))
		if path != schema || role != "none" {
			a.Errorf("a connection of the pool: got search_path %q and role %q, want %q and none", path, role, schema)
		}
	}
}

// makeRole makes a role that may write effects.
func makeRole(a *app, name string) {
	a.Helper()
	a.Exec("CREATE ROLE " + name)
	a.Cleanup(func() { a.Exec("DROP OWNED BY " + name); a.Exec("DROP ROLE " + name) })
	a.Exec("GRANT USAGE ON SCHEMA tenant_b TO " + name)
	a.Exec("GRANT ALL ON tenant_b.effects TO " + name)
}

// A message that its own transaction cannot see any more is poisoned at once: to commit
// without the removal would run it again, and another attempt would end alike.
// Promise: search-path
func TestAMessageThatIsHiddenFromItsRemovalIsPoisoned(t *testing.T) {
	t.Parallel()
	for statement, test := range map[string]func(*testing.T, func(*testing.T, *bun.DB)){
		"DELETE FROM consumer_messages": testdb.Each,
		"COMMIT":                        func(t *testing.T, test func(*testing.T, *bun.DB)) { t.Helper(); test(t, testdb.Postgres(t)) },
	} {
		t.Run(statement, func(t *testing.T) {
			test(t, func(t *testing.T, db *bun.DB) {
				var runs atomic.Int64
				a := testapp.New(t, db, outbox.ConsumeTx("c", func(ctx context.Context, tx bun.Tx, o order) error {
					runs.Add(1)
					_, err := tx.NewRaw(statement).Exec(ctx)
					return err
				}))
				a.Produce(order{})
				a.Start(testapp.Fast())
				testapp.Eventually(t, "the message is poisoned", func() bool { return len(a.Poisoned()) == 1 })
				if p := a.Poisoned()[0]; !strings.Contains(p.Errors, "the message is gone") {
					t.Errorf("errors: got %s, want why it could not be removed", p.Errors)
				}
				if got := runs.Load(); got != 1 {
					t.Errorf("runs: got %d, want 1", got)
				}
			})
		})
	}
}

// Where text could end its literal nothing is begun.
func TestLiteralsThatTextCouldEnd(t *testing.T) {
	postgres := func(t *testing.T) (sound, unsound *bun.DB) {
		dsn := testdb.DirectDSN(t) // a pooler refuses options
		return testdb.OpenPostgres(t, dsn), testdb.OpenPostgres(t, dsn+"&options=-cstandard_conforming_strings%3Doff")
	}
	mariadb := func(t *testing.T) (sound, unsound *bun.DB) {
		dsn := testdb.MariaDBDSN(t)
		return testdb.OpenMariaDB(t, dsn), testdb.OpenMariaDB(t, dsn+"?sql_mode=%27STRICT_TRANS_TABLES,NO_BACKSLASH_ESCAPES%27")
	}
	for name, open := range map[string]func(*testing.T) (sound, unsound *bun.DB){"standard_conforming_strings": postgres,
		"NO_BACKSLASH_ESCAPES": mariadb} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sound, unsound := open(t)
			a := testapp.New(t, sound, bus.Consume("c", func(context.Context, order) error { return nil }))
			processor := testapp.Must[*outbox.Processor](t)(outbox.NewProcessor(unsound, a.Registry, outbox.ProcessorConfig{}))
			schedules := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(unsound, a.Registry, a.Producer, schedule.ProcessorConfig{}))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // for who would run
			defer cancel()
			for what, err := range map[string]error{
				"migrate": outbox.Migrate(ctx, unsound, a.Registry.Tables()), "check": processor.Check(ctx),
				"run": processor.Run(ctx), "check of schedules": schedules.Check(ctx), "run of schedules": schedules.Run(ctx),
			} {
				if err == nil || !strings.Contains(err.Error(), name) {
					t.Errorf("%s: got error %v, want one that names %s", what, err, name)
				}
			}
		})
	}
}

// TestSettingsThatStopPollsAreRefusedAtTheStart: they would have the driver read no timestamp, or the server compile each look.
func TestSettingsThatStopPollsAreRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	for settings, want := range map[string]string{"DateStyle=German": `DateStyle "German, DMY": ISO is needed`,
		"enable_seqscan=off":  "enable_seqscan off with jit on",
		"enable_nestloop=off": "enable_nestloop off with jit on", "DateStyle=ISO, DMY": "", "enable_seqscan=off jit=off": "",
		"jit_above_cost=0": "jit_above_cost 0 with jit on", "jit_above_cost=-1": "", "jit_above_cost=0 jit=off": ""} {
		t.Run(settings, func(t *testing.T) {
			t.Parallel()
			list := []string{settings}
			if setting, jit, both := strings.Cut(settings, " jit"); both {
				list = []string{setting, "jit" + jit}
			}
			a := testapp.New(t, testdb.OpenPostgres(t, testdb.EmptyPostgresDSN(t, list...)),
				bus.Consume("c", func(context.Context, order) error { return nil }))
			processor := testapp.Must[*outbox.Processor](t)(outbox.NewProcessor(a.DB, a.Registry, outbox.ProcessorConfig{}))
			switch err := processor.Check(t.Context()); {
			case want == "" && err != nil:
				t.Errorf("got %v, want no error", err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("got %v, want it to say %s", err, want)
			}
		})
	}
}
