package outbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// None of the servers that are refused can be run here. These are PostgreSQL and MariaDB, made
// to answer as they do.
const (
	cockroach = "CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu, built 2023/09/27 01:53:43, go1.19.10)"
	spanner   = "PostgreSQL 14.1"
	yugabyte  = "PostgreSQL 11.2-YB-2.18.4.0-b0 on x86_64-pc-linux-gnu, compiled by clang version 15.0.3 (https://github.com/yugabyte/llvm-project.git 0b8d1183745fd3998d8beffeec8cbe99c1b20529), 64-bit"
	crate     = "CrateDB 4.1.1 (built Built_on_Unknown/Unknown, Linux 4.4.0)"
)

// saying is a PostgreSQL database in which a function of its own stands before version().
func saying(t *testing.T, version string) (dsn string) {
	t.Helper()
	dsn = testdb.DirectDSN(t)
	execute(t, testdb.OpenPostgres(t, dsn),
		"CREATE SCHEMA fake",
		"CREATE FUNCTION fake.version() RETURNS text LANGUAGE sql AS $$ SELECT '"+version+"'::text $$",
		"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, fake, pg_catalog', current_database()); END $$")
	return dsn
}

func execute(t *testing.T, db *bun.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

type accountOpened struct{}

func (accountOpened) PayloadType() string { return "account.opened" }

// starters are all that looks at the database before it starts, for a registry with events or
// without; untested goes to the processor.
func starters(t *testing.T, db *bun.DB, events, untested bool) map[string]func(context.Context) error {
	t.Helper()
	config := bus.RegistryConfig{}
	types := testapp.Must[*eventlog.Types](t)(eventlog.NewTypes(eventlog.Event[accountOpened]()))
	if events {
		config.Events = types
	}
	done := func(context.Context, order) error { return nil }
	registry := testapp.Must[*bus.Registry](t)(config.NewRegistry(bus.Consume("done", done)))
	producer := testapp.Must[*outbox.Producer](t)(outbox.NewProducer(registry, outbox.ProducerConfig{}))
	processor := testapp.Must[*outbox.Processor](t)(outbox.NewProcessor(db, registry, outbox.ProcessorConfig{AllowUntestedServer: untested}))
	schedules := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(db, registry, producer, schedule.ProcessorConfig{}))
	receivers := testapp.Must[*inbox.Runner](t)(inbox.NewRunner(db, registry, producer, inbox.RunnerConfig{}))
	all := map[string]func(context.Context) error{
		"Check": processor.Check, "schedule.Check": schedules.Check, "relay.Check": receivers.Check,
		"Run": func(ctx context.Context) error {
			ctx, stop := context.WithCancel(ctx)
			defer stop()
			ended := make(chan error, 1)
			go func() { ended <- processor.Run(ctx) }()
			testapp.Eventually(t, "it runs or is refused", func() bool { return processor.Health().Ready || len(ended) > 0 })
			stop()
			return <-ended
		},
	}
	if events {
		log := testapp.Must[*eventlog.Log](t)(eventlog.NewLog(registry, producer, eventlog.LogConfig{}))
		all["projection.Check"] = testapp.Must[*projection.Runner](t)(projection.NewRunner(db, log, projection.RunnerConfig{})).Check
	}
	return all
}

// mustRefuse wants an ErrUnsupportedServer with all of the texts; none wants no error.
func mustRefuse(t *testing.T, what string, err error, texts ...string) {
	t.Helper()
	if len(texts) == 0 {
		if err != nil {
			t.Errorf("%s: got %v, want no error", what, err)
		}
		return
	}
	if !errors.Is(err, outbox.ErrUnsupportedServer) {
		t.Errorf("%s: got error %v, want outbox.ErrUnsupportedServer", what, err)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: got error %v, want one that says %q", what, err, text)
		}
	}
}

// TestServersThatAreNotPostgreSQLAreRefused: by name, from Check to the error, and by all that starts.
func TestServersThatAreNotPostgreSQLAreRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		said      string
		statement string // makes the server known by more than its version()
		says      []string
		untested  bool // it may run if that is allowed
	}{
		"CockroachDB": {said: cockroach, says: []string{"CockroachDB,", cockroach, "use PostgreSQL"}},
		"Spanner":     {said: spanner, says: []string{"Cloud Spanner,", "use PostgreSQL"}},
		"Spanner by its mark": {said: "PostgreSQL 17",
			statement: "CREATE SCHEMA spanner_sys; CREATE TABLE spanner_sys.query_stats (n int)", says: []string{"Cloud Spanner,",
				`"PostgreSQL 17"`}},
		"DSQL": {said: "PostgreSQL 16", statement: "CREATE SCHEMA sys; CREATE VIEW sys.iam_pg_role_mappings AS SELECT 1 AS n",
			says: []string{"Aurora DSQL,", `"PostgreSQL 16"`}},
		"YugabyteDB": {said: yugabyte, says: []string{"YugabyteDB,", yugabyte, "ProcessorConfig.AllowUntestedServer"}, untested: true},
		"unknown":    {said: crate, says: []string{"not known as PostgreSQL", crate, "ProcessorConfig.AllowUntestedServer"}, untested: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := saying(t, test.said)
			if test.statement != "" {
				execute(t, testdb.OpenPostgres(t, dsn), test.statement)
			}
			db := testdb.OpenPostgres(t, dsn)
			err := outbox.Migrate(t.Context(), db, bus.Tables{})
			if test.untested {
				mustRefuse(t, "Migrate", err)
			} else {
				mustRefuse(t, "Migrate", err, test.says...)
			}
			for _, events := range []bool{false, true} {
				for _, allowed := range []bool{false, true} {
					for what, start := range starters(t, db, events, allowed) {
						says := test.says
						ours := what == "Check" || what == "Run" // what the setting is of
						if test.untested && !events && (allowed || !ours) {
							says = nil
						}
						mustRefuse(t, fmt.Sprintf("%s, events %v, AllowUntestedServer %v", what, events, allowed), start(t.Context()), says...)
					}
				}
			}
		})
	}
}

// TestAnUntestedServerRunsMessages where it is allowed, and leaves nothing of the check behind.
func TestAnUntestedServerRunsMessages(t *testing.T) {
	t.Parallel()
	db := testdb.OpenPostgres(t, saying(t, yugabyte))
	ran := make(chan order, 1)
	a := testapp.New(t, db, bus.Consume("run", func(_ context.Context, o order) error { ran <- o; return nil }))
	a.Produce(order{ID: "1"})
	p := testapp.Must[*outbox.Processor](t)(outbox.NewProcessor(db, a.Registry, outbox.ProcessorConfig{AllowUntestedServer: true}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	select {
	case <-ran:
	case err := <-ended:
		t.Fatalf("run: got %v, want a message that runs", err)
	case <-time.After(2 * time.Minute):
		t.Error("no message has run in 2 minutes")
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("run: %v", err)
	}
	var left int
	if err := db.NewRaw("SELECT count(*) FROM inbox_messages").Scan(t.Context(), &left); err != nil || left != 0 {
		t.Errorf("rows of the check: got %d and error %v, want none", left, err)
	}
}

// TestReadCommittedMustBeEffective: YugabyteDB without yb_enable_read_committed_isolation takes
// the word and gives a transaction one snapshot; here the driver does that.
// Promise: one-worker, isolation
func TestReadCommittedMustBeEffective(t *testing.T) {
	t.Parallel()
	dsn := saying(t, yugabyte)
	testapp.New(t, testdb.OpenPostgres(t, dsn))
	config := testapp.Must[*pgx.ConnConfig](t)(pgx.ParseConfig(dsn))
	conns := sql.OpenDB(&impostor{Connector: stdlib.GetConnector(*config), isolation: sql.LevelRepeatableRead})
	t.Cleanup(func() { _ = conns.Close() })
	db := bun.NewDB(conns, pgdialect.New())
	for what, start := range starters(t, db, false, true) {
		mustRefuse(t, what, start(t.Context()), "YugabyteDB", "READ COMMITTED is not effective")
	}
}

// TestCitusMustLeaveTablesWhereTheyAre: its catalog, filled by hand.
func TestCitusMustLeaveTablesWhereTheyAre(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rows string // of pg_dist_partition
		says []string
	}{
		"no tables":      {},
		"others' tables": {rows: "('theirs', 'h', 's', 1)"},
		"known, local":   {rows: "('message_claims', 'n', 's', 0)"},
		"distributed": {rows: "('message_claims', 'h', 's', 1), ('consumer_messages', 'h', 's', 1)",
			says: []string{"Citus,", "distributed are: consumer_messages, message_claims"}},
		"a reference":     {rows: "('consumer_messages', 'n', 't', 2)", says: []string{"Citus,", "distributed are: consumer_messages"}},
		"a tenant schema": {rows: "('event_head', 'n', 's', 3)", says: []string{"Citus,", "distributed are: event_head"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testdb.Postgres(t)
			testapp.New(t, db)
			execute(t, db, "CREATE TABLE theirs (n int)",
				`SET allow_system_table_mods = on; CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid regclass NOT NULL, partmethod "char" NOT NULL, partkey text, colocationid integer NOT NULL DEFAULT 0, repmodel "char" NOT NULL DEFAULT 'c'); RESET allow_system_table_mods`)
			if test.rows != "" {
				execute(t, db, "INSERT INTO pg_dist_partition (logicalrelid, partmethod, repmodel, colocationid) VALUES "+test.rows)
			}
			for what, start := range starters(t, db, true, true) {
				mustRefuse(t, what, start(t.Context()), test.says...)
			}
		})
	}
}

// TestServersThatAreNotMariaDBAreRefused in the same way.
func TestServersThatAreNotMariaDBAreRefused(t *testing.T) {
	t.Parallel()
	for said, test := range map[string]struct {
		says     []string
		untested bool
	}{
		"8.4.5-log":          {says: []string{"MySQL,", `"8.4.5-log"`, "ProcessorConfig.AllowUntestedServer"}, untested: true},
		"8.0.30-Vitess":      {says: []string{"not known as MariaDB", "8.0.30-Vitess", "ProcessorConfig.AllowUntestedServer"}, untested: true},
		"5.7.44":             {says: []string{"MySQL,", "MySQL 8 or newer"}},
		"8.0.11-TiDB-v7.5.1": {says: []string{"TiDB,", "SKIP LOCKED", "use MariaDB"}},
	} {
		t.Run(said, func(t *testing.T) {
			t.Parallel()
			dsn := testdb.MariaDBDSN(t)
			testapp.New(t, testdb.OpenMariaDB(t, dsn))
			config := testapp.Must[*mysql.Config](t)(mysql.ParseDSN(dsn))
			connector := testapp.Must[driver.Connector](t)(mysql.NewConnector(config))
			conns := sql.OpenDB(&impostor{Connector: connector, said: said})
			t.Cleanup(func() { _ = conns.Close() })
			conns.SetMaxOpenConns(20)
			db := bun.NewDB(conns, mysqldialect.New())
			for _, allowed := range []bool{false, true} {
				for what, start := range starters(t, db, false, allowed) {
					says := test.says
					if test.untested && (allowed || what != "Check" && what != "Run") {
						says = nil
					}
					mustRefuse(t, fmt.Sprintf("%s, AllowUntestedServer %v", what, allowed), start(t.Context()), says...)
				}
			}
		})
	}
}

// impostor is a driver that answers with another version(), or begins transactions at a
// level that nobody asked for.
type impostor struct {
	driver.Connector
	said      string
	isolation sql.IsolationLevel
}

// Connect implements driver.Connector.
func (i *impostor) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := i.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &impostorConn{conn.(wholeConn), i}, nil
}

// wholeConn is what both drivers have.
type wholeConn interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.QueryerContext
	driver.ExecerContext
	driver.Pinger
	driver.SessionResetter
	driver.NamedValueChecker
}

type impostorConn struct {
	wholeConn
	by *impostor
}

// QueryContext implements driver.QueryerContext.
func (c *impostorConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.by.said != "" && query == "SELECT version()" {
		query = "SELECT '" + c.by.said + "'"
	}
	return c.wholeConn.QueryContext(ctx, query, args)
}

// BeginTx implements driver.ConnBeginTx.
func (c *impostorConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	if c.by.isolation != 0 {
		options.Isolation = driver.IsolationLevel(c.by.isolation)
	}
	return c.wholeConn.BeginTx(ctx, options)
}
