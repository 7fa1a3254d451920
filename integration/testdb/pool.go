package testdb

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// A database is one of PostgreSQL that tests have one after the other. shape describes its tables, if they are those
// that [outbox.Migrate] makes, of which last is the last: to empty them costs a fifth of what it costs to make and drop a
// database. Its sessions are kept, too: to begin one costs 20 times what it costs to forget what was set in it.
type database struct {
	name, shape string
	last        int64
	sessions    *sql.DB // nil: none yet
}

// open makes a pool of sessions, if there is none.
func (d *database) open(t testing.TB) {
	t.Helper()
	if d.sessions != nil {
		return
	}
	var err error
	if d.sessions, err = sql.Open("pgx", PostgresDSNOf(t, d.name)); err != nil {
		t.Fatalf("open %s: %v", Variable, err)
	}
	limitSessions(d.sessions)
}

// close ends the sessions.
func (d *database) close() {
	if d.sessions != nil {
		_ = d.sessions.Close()
		d.sessions = nil
	}
}

// databases are the PostgreSQL databases of this process. The last test that has one drops those that are left.
var databases struct {
	sync.Mutex
	used int         // how many tests have one
	free []*database // those that no test has
}

// take returns a database: with the library's tables where they are wanted, and empty otherwise.
func take(t testing.TB, tables bool) *database {
	t.Helper()
	if d, ok := takeFree(tables); ok {
		return d
	}
	ctx := context.Background()
	d := &database{name: "t_" + strings.ToLower(rand.Text()[:12])}
	atServer(t, "CREATE DATABASE "+d.name)
	if !tables {
		return d
	}
	db, err := openPostgres(directDSNOf(t, d.name)) // so that a pooler has no session from before the test's settings
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // what was written is committed
	if err := outbox.Migrate(ctx, db, bus.Tables{}); err != nil {
		t.Fatal(err)
	}
	if err := db.QueryRowContext(ctx, "SELECT max(oid)::bigint FROM pg_class").Scan(&d.last); err != nil {
		t.Fatal(err)
	}
	if d.shape, err = shapeOf(ctx, db); err != nil {
		t.Fatalf("shape of %s: %v", d.name, err)
	}
	return d
}

// atServer runs statements that belong to no database.
func atServer(t testing.TB, statements ...string) {
	t.Helper()
	db, err := openPostgres(os.Getenv(Variable))
	if err != nil {
		t.Fatalf("open %s: %v", Variable, err)
	}
	defer db.Close() //nolint:errcheck // what was written is committed
	for _, statement := range statements {
		if _, err := db.ExecContext(context.Background(), statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

func takeFree(tables bool) (*database, bool) {
	databases.Lock()
	defer databases.Unlock()
	databases.used++
	for i, d := range databases.free {
		if tables == (d.shape != "") {
			databases.free = append(databases.free[:i:i], databases.free[i+1:]...)
			return d, true
		}
	}
	return nil, false
}

// giveBack empties a database for the next test, or drops it: after a test that failed, and where it cannot be emptied.
// A session that has the settings of the test may be unable to.
func giveBack(t testing.TB, d *database) {
	t.Helper()
	reuse := !t.Failed() && os.Getenv(DirectVariable) == "" && emptied(t, d)
	var drop []string
	for _, d := range surplus(d, reuse) {
		d.close()
		drop = append(drop, "DROP DATABASE "+d.name+" WITH (FORCE)")
	}
	if len(drop) > 0 {
		atServer(t, drop...)
	}
}

// surplus returns the databases to drop once a test has no use for one any more.
func surplus(d *database, reuse bool) (drop []*database) {
	databases.Lock()
	defer databases.Unlock()
	databases.used--
	if reuse {
		databases.free = append(databases.free, d)
	} else {
		drop = []*database{d}
	}
	if databases.used == 0 {
		databases.free, drop = nil, append(drop, databases.free...)
	}
	return drop
}

// shape describes what a test may change beside the rows of tables, and the rows that no test is to change.
const shape = `SELECT md5(string_agg(what, ',' ORDER BY what)) FROM (
  SELECT concat_ws(' ', oid, relname, relkind, relnamespace, relowner, relpersistence, relacl, reloptions) FROM pg_class WHERE oid >= 16384
  UNION ALL SELECT concat_ws(' ', attrelid, attnum, attname, xmin) FROM pg_attribute WHERE attrelid >= 16384
  UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_constraint WHERE oid >= 16384
  UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_attrdef WHERE oid >= 16384
  UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_trigger WHERE oid >= 16384
  UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_proc WHERE oid >= 16384
  UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_type WHERE oid >= 16384
  UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_extension
  UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_event_trigger
  UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp_'
  UNION ALL SELECT concat_ws(' ', seqrelid, xmin) FROM pg_sequence
  UNION ALL SELECT concat_ws(' ', starelid, staattnum) FROM pg_statistic WHERE starelid >= 16384
  UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_statistic_ext
  UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_policy
  UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_publication
  UNION ALL SELECT gid FROM pg_prepared_xacts WHERE database = current_database()
  UNION ALL SELECT concat_ws(' ', version, applied_at) FROM asyncmonolith_migrations) AS parts (what)`

// querier is a database or one of its sessions.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func shapeOf(ctx context.Context, db querier) (shaped string, err error) {
	err = db.QueryRowContext(ctx, shape).Scan(&shaped)
	return shaped, err
}

// endSessions is for statements that have to wait for nothing. It leaves the sessions that are kept.
const endSessions = `
  PERFORM set_config('lock_timeout', '2s', true), set_config('statement_timeout', '10s', true);
  PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> ALL (current_setting('testdb.kept')::int[]);`

// dropTables drops a test's own tables.
const dropTables = `DO $$ DECLARE r record; BEGIN` + endSessions + `
  FOR r IN SELECT oid::regclass AS name FROM pg_class WHERE oid > %d AND relkind = 'r' AND relnamespace = 'public'::regnamespace LOOP
    EXECUTE format('DROP TABLE IF EXISTS %%s CASCADE', r.name);
  END LOOP;
END $$`

// emptyTables leaves the library's tables as [outbox.Migrate] makes them, or fails.
const emptyTables = `DO $$ DECLARE r record; BEGIN` + endSessions + `
  FOR r IN SELECT oid::regclass AS name FROM pg_class WHERE oid >= 16384 AND relkind = 'r' AND relnamespace = 'public'::regnamespace
    AND pg_relation_size(oid) > 0 AND relname <> 'asyncmonolith_migrations'
  LOOP
    EXECUTE format('TRUNCATE %s', r.name);
  END LOOP;
  PERFORM setval(oid, 1, false) FROM pg_class WHERE oid >= 16384 AND relkind = 'S';
  INSERT INTO event_head (id, position) VALUES (1, 0);
END $$`

// empty leaves a database as CREATE DATABASE makes it, or fails. What PostgreSQL itself has made has ids below 16384.
// From version 15 on, only the owner may create in schema public.
const empty = `DO $$ DECLARE s text; BEGIN` + endSessions + `
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

// emptied tells whether the database is now as [take] has given it away.
func emptied(t testing.TB, d *database) bool {
	ctx := context.Background()
	kept, pids := d.keepSessions(ctx, t)
	if len(kept) == 0 {
		return false
	}
	defer func() {
		release(kept)
		d.sessions.SetMaxIdleConns(mostKept) // closes the others
		limitSessions(d.sessions)
	}()
	exec := func(statement string) bool {
		_, err := kept[0].ExecContext(ctx, statement)
		return err == nil
	}
	if !exec("SET testdb.kept = '{" + strings.Join(pids, ",") + "}'") {
		return false
	}
	defer exec("RESET testdb.kept")
	if d.shape == "" {
		return exec(empty)
	}
	if !exec(fmt.Sprintf(dropTables, d.last)) {
		return false
	}
	shaped, err := shapeOf(ctx, kept[0])
	return err == nil && shaped == d.shape && exec(emptyTables)
}

// keepSessions is [keep] of sessions that began without settings of the database: they would have them for ever. It
// returns none if there are no such sessions.
func (d *database) keepSessions(ctx context.Context, t testing.TB) (kept []*sql.Conn, pids []string) {
	for range 3 { // at work, and then with the settings of the test
		kept, pids = keep(ctx, d.sessions)
		if len(kept) > 0 && !d.reset(ctx, kept[0]) {
			return kept, pids
		}
		release(kept)
		d.close()
		d.open(t)
	}
	return nil, nil
}

// reset removes the settings of the database, and tells whether there may have been any.
func (d *database) reset(ctx context.Context, c *sql.Conn) bool {
	var set bool
	const settings = `SELECT EXISTS (SELECT FROM pg_db_role_setting WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = $1))`
	if err := c.QueryRowContext(ctx, settings, d.name).Scan(&set); err == nil && !set {
		return false
	}
	_, _ = c.ExecContext(ctx, "ALTER DATABASE "+d.name+" RESET ALL") // seen at the next try
	return true
}

func release(sessions []*sql.Conn) {
	for _, c := range sessions {
		_ = c.Close()
	}
}

// mostKept is how many sessions of a database are kept for the next test.
const mostKept = 8

// keep takes the idle sessions, of which there is at least one, and has them forget what was set in them. It returns none
// if one cannot, and if a test has left one at work.
func keep(ctx context.Context, sessions *sql.DB) (kept []*sql.Conn, pids []string) {
	stats := sessions.Stats()
	if stats.InUse > 0 {
		return nil, nil
	}
	limitSessions(sessions)
	for range max(1, stats.Idle) {
		c, err := sessions.Conn(ctx)
		if err == nil {
			kept = append(kept, c)
			var pid string
			if _, err = c.ExecContext(ctx, "DISCARD ALL"); err == nil {
				err = c.QueryRowContext(ctx, "SELECT pg_backend_pid()::text").Scan(&pid)
			}
			pids = append(pids, pid)
		}
		if err != nil {
			release(kept)
			return nil, nil
		}
	}
	return kept, pids
}
