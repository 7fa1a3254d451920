package testdb

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/uptrace/bun"
)

// databases are the PostgreSQL databases of this process. To empty one costs a third of what it costs to make
// and drop one. The last test that has a database drops those that are left.
var databases struct {
	sync.Mutex
	used  int      // how many tests have one
	empty []string // those that no test has
}

// take returns the name of an empty database, or "" where there is none.
func take() string {
	databases.Lock()
	defer databases.Unlock()
	databases.used++
	if len(databases.empty) == 0 {
		return ""
	}
	name := databases.empty[0]
	databases.empty = databases.empty[1:]
	return name
}

// giveBack empties a database for the next test, or drops it: after a test that failed, where it has settings
// of its own, and where it cannot be emptied.
func giveBack(t testing.TB, server *bun.DB, name string, settings []string) {
	t.Helper()
	reuse := !t.Failed() && len(settings) == 0 && os.Getenv(DirectVariable) == "" && emptied(t, server, name)
	for _, name := range surplus(name, reuse) {
		if _, err := server.ExecContext(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("drop database: %v", err)
		}
	}
}

// surplus returns the databases to drop once a test has no use for one any more.
func surplus(name string, reuse bool) (drop []string) {
	databases.Lock()
	defer databases.Unlock()
	databases.used--
	if reuse {
		databases.empty = append(databases.empty, name)
	} else {
		drop = []string{name}
	}
	if databases.used == 0 {
		databases.empty, drop = nil, append(drop, databases.empty...)
	}
	return drop
}

// empty leaves a database as CREATE DATABASE makes it, or fails. What PostgreSQL itself has made has ids below 16384.
// From version 15 on, only the owner may create in schema public.
const empty = `DO $$ DECLARE s text; BEGIN
  PERFORM set_config('lock_timeout', '2s', true), set_config('statement_timeout', '10s', true);
  PERFORM pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid();
  FOR s IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
    EXECUTE format('DROP SCHEMA %I CASCADE', s);
  END LOOP;
  IF EXISTS (SELECT FROM pg_class WHERE oid >= 16384) OR EXISTS (SELECT FROM pg_proc WHERE oid >= 16384)
    OR EXISTS (SELECT FROM pg_type WHERE oid >= 16384) OR EXISTS (SELECT FROM pg_extension WHERE oid >= 16384)
    OR EXISTS (SELECT FROM pg_event_trigger) OR EXISTS (SELECT FROM pg_prepared_xacts WHERE database = current_database()) THEN
    RAISE EXCEPTION 'something is left outside the schemas of users';
  END IF;
  CREATE SCHEMA public;
  GRANT USAGE ON SCHEMA public TO PUBLIC;
  IF current_setting('server_version_num')::int < 150000 THEN
    GRANT CREATE ON SCHEMA public TO PUBLIC;
  ELSE
    ALTER SCHEMA public OWNER TO pg_database_owner;
  END IF;
END $$`

// emptied tells whether the database is empty now.
func emptied(t testing.TB, server *bun.DB, name string) bool {
	if _, err := server.ExecContext(context.Background(), "ALTER DATABASE "+name+" RESET ALL"); err != nil {
		return false
	}
	db, err := openPostgres(PostgresDSNOf(t, name))
	if err != nil {
		return false
	}
	defer db.Close() //nolint:errcheck // nothing was written since the statement
	_, err = db.ExecContext(context.Background(), empty)
	return err == nil
}
