package testdb_test

import (
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// A database that another test has had has the tables of a new one, without a row.
func TestTablesAreNewAfterAnotherTest(t *testing.T) {
	held := testdb.PostgresDSN(t)
	for _, statement := range []string{
		"INSERT INTO event_streams (stream, category, version, created_at) VALUES ('s', 's', 1, now()); SELECT nextval('message_ranks'); UPDATE event_head SET position = 9",
		"ALTER TABLE consumer_messages ADD COLUMN more int",
		"CREATE INDEX more ON consumer_messages (attempts)",
		"DELETE FROM asyncmonolith_migrations",
		"CREATE TABLE more (n int REFERENCES consumer_messages (id), m serial)",
		"CREATE SCHEMA other; CREATE TABLE other.t (n int)",
	} {
		t.Run(statement, func(t *testing.T) {
			if _, err := testdb.Postgres(t).ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		})
		t.Run("after it", func(t *testing.T) {
			dsn := testdb.PostgresDSN(t)
			if dsn == held {
				t.Fatal("got a database that a test has")
			}
			var got [5]int
			if err := testdb.OpenPostgres(t, dsn).QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM event_streams),
				(SELECT position FROM event_head), (SELECT count(*) FROM asyncmonolith_migrations), nextval('message_ranks'),
				(SELECT count(*) FROM pg_class WHERE relname = 'more' OR relnamespace = to_regnamespace('other'))
				+ (SELECT count(*) FROM pg_attribute WHERE attname = 'more')`,
			).Scan(&got[0], &got[1], &got[2], &got[3], &got[4]); err != nil || got != [5]int{0, 0, 1, 1, 0} {
				t.Errorf("streams, head, migrations, next rank, what is more: got %v and error %v, want 0, 0, 1, 1, 0", got, err)
			}
		})
	}
}

// A database that another test has had is as empty as a new one.
func TestPostgresIsEmptyAfterAnotherTest(t *testing.T) {
	held := testdb.EmptyPostgresDSN(t) // as long as a test has a database, those of others are kept
	for _, statement := range []string{
		"CREATE TABLE t (n int)",
		"CREATE SCHEMA other; CREATE VIEW other.v AS SELECT 1 AS n; CREATE FUNCTION other.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
		"CREATE TYPE mood AS ENUM ('fine')",
		"SET allow_system_table_mods = on; CREATE TABLE pg_catalog.pg_dist_partition (n int)",
		"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = pg_catalog', current_database()); END $$",
	} {
		t.Run(statement, func(t *testing.T) {
			if _, err := testdb.EmptyPostgres(t).ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		})
		t.Run("after it", func(t *testing.T) {
			dsn := testdb.EmptyPostgresDSN(t)
			if dsn == held {
				t.Fatal("got a database that a test has")
			}
			var left int
			var path string
			if err := testdb.OpenPostgres(t, dsn).QueryRowContext(t.Context(), `SELECT current_setting('search_path'),
				(SELECT count(*) FROM pg_class WHERE oid >= 16384) + (SELECT count(*) FROM pg_proc WHERE oid >= 16384)
				+ (SELECT count(*) FROM pg_type WHERE oid >= 16384) + (SELECT count(*) FROM pg_namespace WHERE nspname = 'other')`,
			).Scan(&path, &left); err != nil || left > 0 || path != `"$user", public` {
				t.Errorf("got search_path %s, %d objects and error %v, want a database as it was made", path, left, err)
			}
		})
	}
}

// The settings of a test are not those of the next one that has its database, nor of the sessions that it is given.
func TestSettingsEndWithTheTest(t *testing.T) {
	testdb.PostgresDSN(t) // as long as a test has a database, those of others are kept
	var first string
	settingsOf := func(t *testing.T, db *bun.DB) (name, level string) {
		t.Helper()
		err := db.QueryRowContext(t.Context(), "SELECT current_database(), current_setting('default_transaction_isolation')").Scan(&name, &level)
		if err != nil {
			t.Fatal(err)
		}
		return name, level
	}
	t.Run("with settings", func(t *testing.T) {
		var level string
		first, level = settingsOf(t, testdb.OpenPostgres(t, testdb.PostgresDSN(t, testdb.Isolation("serializable"))))
		if level != "serializable" {
			t.Errorf("got level %s, want serializable", level)
		}
	})
	for range 2 {
		t.Run("after it", func(t *testing.T) {
			if name, level := settingsOf(t, testdb.Postgres(t)); name != first || level != "read committed" {
				t.Errorf("got database %s with level %s, want %s with read committed", name, level, first)
			}
		})
	}
}
