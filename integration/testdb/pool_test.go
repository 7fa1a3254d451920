package testdb_test

import (
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// A database that another test has had is as empty as a new one.
func TestPostgresIsEmptyAfterAnotherTest(t *testing.T) {
	held := testdb.PostgresDSN(t) // as long as a test has a database, those of others are kept
	for _, statement := range []string{
		"CREATE TABLE t (n int)",
		"CREATE SCHEMA other; CREATE VIEW other.v AS SELECT 1 AS n; CREATE FUNCTION other.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
		"CREATE TYPE mood AS ENUM ('fine')",
		"SET allow_system_table_mods = on; CREATE TABLE pg_catalog.pg_dist_partition (n int)",
		"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = pg_catalog', current_database()); END $$",
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
