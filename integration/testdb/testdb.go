// Package testdb gives every test a database of its own.
package testdb

import (
	"cmp"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// Variable names the environment variable with the DSN of a PostgreSQL server
// on which databases may be created.
const Variable = "ASYNCMONOLITH_TEST_POSTGRES"

// IsolationVariable names the environment variable with the isolation level that
// PostgreSQL databases get as their default, such as "serializable". A test that
// asks for a level of its own gets that.
const IsolationVariable = "ASYNCMONOLITH_TEST_ISOLATION"

// DirectVariable names the environment variable with a DSN of the same server past
// the pooler that [Variable] leads through, if it does.
const DirectVariable = "ASYNCMONOLITH_TEST_POSTGRES_DIRECT"

// DatabasesVariable names the environment variable with the databases that this run is about, such as
// "postgres,sqlite". A test on another one is skipped. "mariadb:TestStore" is MariaDB for this test alone. Unset, the
// run is about all of them.
const DatabasesVariable = "ASYNCMONOLITH_TEST_DATABASES"

// Each runs a test once per database. That of PostgreSQL has the library's tables, which spares [outbox.Migrate] its
// work; the others are empty.
func Each(t *testing.T, test func(t *testing.T, db *bun.DB)) {
	t.Run("mariadb", func(t *testing.T) { t.Parallel(); test(t, MariaDB(t)) })
	EachWithEvents(t, test)
}

// EachEmpty is [Each] of databases without a table.
func EachEmpty(t *testing.T, test func(t *testing.T, db *bun.DB)) {
	t.Run("mariadb", func(t *testing.T) { t.Parallel(); test(t, MariaDB(t)) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); test(t, EmptyPostgres(t)) })
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); test(t, SQLite(t)) })
}

// EachWithEvents runs a test once per database that has the event log.
func EachWithEvents(t *testing.T, test func(t *testing.T, db *bun.DB)) {
	t.Run("postgres", func(t *testing.T) { t.Parallel(); test(t, Postgres(t)) })
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); test(t, SQLite(t)) })
}

// need skips a test on a database that this run is not about.
func need(t testing.TB, database string) {
	t.Helper()
	chosen := os.Getenv(DatabasesVariable)
	test, _, _ := strings.Cut(t.Name(), "/")
	is := func(choice string) bool { return choice == database || choice == database+":"+test }
	if chosen != "" && !slices.ContainsFunc(strings.Split(chosen, ","), is) {
		t.Skipf("%s is %q", DatabasesVariable, chosen)
	}
}

// EachBenchmark runs a benchmark once per database.
func EachBenchmark(b *testing.B, run func(b *testing.B, db *bun.DB)) {
	b.Run("mariadb", func(b *testing.B) { run(b, MariaDB(b)) })
	b.Run("postgres", func(b *testing.B) { run(b, Postgres(b)) })
	b.Run("sqlite", func(b *testing.B) { run(b, SQLite(b)) })
}

// Postgres opens a database with the library's tables, without a row. A missing server fails the test.
func Postgres(t testing.TB) *bun.DB {
	t.Helper()
	return bun.NewDB(takePostgres(t, true).sessions, pgdialect.New())
}

// EmptyPostgres opens a database without a table.
func EmptyPostgres(t testing.TB) *bun.DB { return OpenPostgres(t, EmptyPostgresDSN(t)) }

// PostgresDSN returns a database with the library's tables that is the test's until it ends. Its sessions have the
// settings, such as "lock_timeout=7s": they belong to the database, since not everything that may stand before it lets
// a client have its own.
func PostgresDSN(t testing.TB, settings ...string) string { return postgresDSN(t, true, settings...) }

// EmptyPostgresDSN is [PostgresDSN] of a database without a table.
func EmptyPostgresDSN(t testing.TB, settings ...string) string {
	return postgresDSN(t, false, settings...)
}

func postgresDSN(t testing.TB, tables bool, settings ...string) string {
	t.Helper()
	return PostgresDSNOf(t, takePostgres(t, tables, settings...).name)
}

func takePostgres(t testing.TB, tables bool, settings ...string) *database {
	t.Helper()
	need(t, "postgres")
	if os.Getenv(Variable) == "" {
		t.Fatalf("%s is not set: run the tests with `make test`, which starts a private PostgreSQL", Variable)
	}
	if level := os.Getenv(IsolationVariable); level != "" {
		settings = append([]string{Isolation(level)}, settings...)
	}
	d := take(t, tables)
	t.Cleanup(func() { giveBack(t, d) })
	var set []string
	for _, setting := range settings {
		key, value, _ := strings.Cut(setting, "=")
		set = append(set, fmt.Sprintf("ALTER DATABASE %s SET %s = '%s'", d.name, key, value))
	}
	if len(set) > 0 {
		atServer(t, set...)
		d.close() // sessions keep the settings that they began with
	}
	d.open(t)
	return d
}

// DirectDSN is [PostgresDSN] for what does not work through a pooler, as LISTEN.
func DirectDSN(t testing.TB) string {
	t.Helper()
	return directDSNOf(t, strings.TrimPrefix(parse(t, PostgresDSN(t)).Path, "/"))
}

func directDSNOf(t testing.TB, name string) string {
	t.Helper()
	return databaseOf(t, cmp.Or(os.Getenv(DirectVariable), os.Getenv(Variable)), name)
}

// Isolation is the setting of a default isolation level.
func Isolation(level string) string { return "default_transaction_isolation=" + level }

// Isolations lists the values of default_transaction_isolation.
func Isolations() []string { return []string{"read committed", "repeatable read", "serializable"} }

// PostgresDSNOf returns the DSN of a database on the server by its name.
func PostgresDSNOf(t testing.TB, name string) string {
	t.Helper()
	return databaseOf(t, os.Getenv(Variable), name)
}

func databaseOf(t testing.TB, server, name string) string {
	t.Helper()
	dsn := parse(t, server)
	dsn.Path = "/" + name
	return dsn.String()
}

func parse(t testing.TB, dsn string) *url.URL {
	t.Helper()
	parsed, err := url.Parse(dsn)
	if err != nil {
		t.Fatalf("DSN: %v", err)
	}
	return parsed
}

// OpenPostgres opens a database by its DSN.
func OpenPostgres(t testing.TB, dsn string) *bun.DB {
	t.Helper()
	db, err := openPostgres(dsn)
	if err != nil {
		t.Fatalf("open %s: %v", Variable, err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func openPostgres(dsn string) (*bun.DB, error) {
	conns, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, err
	}
	limitSessions(conns)
	return bun.NewDB(conns, pgdialect.New()), nil
}

func limitSessions(conns *sql.DB) {
	conns.SetMaxOpenConns(20)
	conns.SetMaxIdleConns(20)
	conns.SetConnMaxLifetime(0)
	conns.SetConnMaxIdleTime(0)
}

// SQLite opens a new, empty database in a temporary file.
func SQLite(t testing.TB) *bun.DB {
	t.Helper()
	return OpenSQLite(t, filepath.Join(t.TempDir(), "test.db"))
}

// OpenSQLite opens a database file with the settings the library needs.
func OpenSQLite(t testing.TB, path string) *bun.DB {
	t.Helper()
	return OpenSQLiteWith(t, path, "_txlock=immediate&_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
}

// OpenSQLiteWith opens a database file with settings of the test's own.
func OpenSQLiteWith(t testing.TB, path, query string) *bun.DB {
	t.Helper()
	need(t, "sqlite")
	escaped := strings.NewReplacer("%", "%25", "#", "%23", "?", "%3f").Replace(path) // a second subtest of one name has a # in its
	conns, err := sql.Open("sqlite", fmt.Sprintf("file:%s?%s", escaped, query))
	if err != nil {
		t.Fatalf("open sqlite: %v", err)
	}
	conns.SetMaxOpenConns(4)
	db := bun.NewDB(conns, sqlitedialect.New())
	t.Cleanup(func() { _ = db.Close() })
	return db
}
