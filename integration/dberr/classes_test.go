package dberr_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
)

// provocation makes a database answer with an error of a class.
type provocation struct {
	name   string
	want   dberr.Class
	outage bool // for a statement of ours
	run    func(p *provoker) error
}

// provoker is a database with a table t of two rows.
type provoker struct {
	*testing.T
	db *bun.DB
}

func (p *provoker) exec(db bun.IDB, statements ...string) error {
	for _, statement := range statements {
		if _, err := db.NewRaw(statement).Exec(p.Context()); err != nil {
			return err
		}
	}
	return nil
}

func sends(statements ...string) func(p *provoker) error {
	return func(p *provoker) error {
		return p.db.RunInTx(p.Context(), nil, func(_ context.Context, tx bun.Tx) error { return p.exec(tx, statements...) })
	}
}

// whileLocked sends statements beside a transaction that has locked a row.
func whileLocked(statements ...string) func(p *provoker) error {
	return func(p *provoker) error {
		return p.db.RunInTx(p.Context(), nil, func(_ context.Context, tx bun.Tx) error {
			return errors.Join(p.exec(tx, "UPDATE t SET v = 2 WHERE n = 1"), sends(statements...)(p))
		})
	}
}

func raises(code string) func(p *provoker) error {
	return sends("DO $$ BEGIN RAISE EXCEPTION 'provoked' USING ERRCODE = '" + code + "'; END $$")
}

func signals(state, number string) func(p *provoker) error {
	return sends("SIGNAL SQLSTATE '" + state + "' SET MYSQL_ERRNO = " + number)
}

// deadlocks has two transactions lock two rows in opposite orders.
func deadlocks(p *provoker) error {
	var meeting, both sync.WaitGroup
	meeting.Add(2)
	var errs [2]error
	for i, orders := range [2][2]string{{"1", "2"}, {"2", "1"}} {
		both.Go(func() {
			errs[i] = p.db.RunInTx(p.Context(), nil, func(_ context.Context, tx bun.Tx) error {
				first := p.exec(tx, "UPDATE t SET v = v WHERE n = "+orders[0])
				meeting.Done()
				meeting.Wait()
				return errors.Join(first, p.exec(tx, "UPDATE t SET v = v WHERE n = "+orders[1]))
			})
		})
	}
	both.Wait()
	return errors.Join(errs[:]...)
}

func serialization(p *provoker) error {
	return p.db.RunInTx(p.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable}, func(_ context.Context, tx bun.Tx) error {
		return errors.Join(p.exec(tx, "SELECT * FROM t"), p.exec(p.db, "UPDATE t SET v = v + 1"), p.exec(tx, "UPDATE t SET v = v + 1"))
	})
}

func pastDeadline(p *provoker) error {
	ctx, cancel := context.WithTimeout(p.Context(), time.Millisecond)
	defer cancel()
	<-ctx.Done()
	_, err := p.db.NewRaw("SELECT 1").Exec(ctx)
	return err
}

func cancelled(p *provoker) error {
	ctx, cancel := context.WithCancel(p.Context())
	cancel()
	_, err := p.db.NewRaw("SELECT 1").Exec(ctx)
	return err
}

func everywhere() []provocation {
	return []provocation{
		{"no table", dberr.Schema, false, sends("SELECT * FROM nowhere")},
		{"no column", dberr.Schema, false, sends("SELECT missing FROM t")},
		{"taken key", dberr.Refused, false, sends("INSERT INTO t VALUES (1, 1)")},
		{"bad syntax", dberr.Other, false, sends("SELEKT 1")},
		{"our deadline", dberr.Timeout, false, pastDeadline},
		{"cut off", dberr.Cancelled, true, cancelled},
	}
}

func provocations(d dialect.Name) []provocation {
	switch d {
	case dialect.PG:
		return append(everywhere(),
			provocation{"deadlock", dberr.Conflict, false, deadlocks},
			provocation{"serialization", dberr.Conflict, false, serialization},
			provocation{"lock timeout", dberr.LockTimeout, false, whileLocked("SET LOCAL lock_timeout = 20", "UPDATE t SET v = 3 WHERE n = 1")},
			provocation{"no wait", dberr.LockTimeout, false, whileLocked("SELECT * FROM t FOR UPDATE NOWAIT")},
			provocation{"statement timeout", dberr.Timeout, false, sends("SET LOCAL statement_timeout = 20", "SELECT pg_sleep(10)")},
			provocation{"transaction timeout", dberr.Timeout, false, raises("25P04")}, // the setting is PostgreSQL 17's
			provocation{"read only", dberr.ReadOnly, true, sends("SET TRANSACTION READ ONLY", "INSERT INTO t VALUES (3, 3)")},
			provocation{"terminated", dberr.Unavailable, true, sends("SELECT pg_terminate_backend(pg_backend_pid())")},
			provocation{"disk full", dberr.Exhausted, true, raises("53100")},
			provocation{"out of memory", dberr.Exhausted, true, raises("53200")},
			provocation{"too many connections", dberr.Exhausted, true, raises("53300")},
			provocation{"i/o error", dberr.Exhausted, true, raises("58030")},
			provocation{"starting up", dberr.Unavailable, true, raises("57P03")},
			provocation{"lost", dberr.Unavailable, true, raises("08006")},
			provocation{"bad value", dberr.Refused, false, sends("SELECT 'x'::int")},
			provocation{"too complex", dberr.Refused, false, raises("54001")},
			provocation{"no privilege", dberr.Other, false, raises("42501")},
			provocation{"internal", dberr.Other, false, raises("XX000")})
	case dialect.MySQL:
		return append(everywhere(),
			provocation{"deadlock", dberr.Conflict, false, deadlocks},
			provocation{"lock timeout", dberr.LockTimeout, false,
				whileLocked("SET STATEMENT innodb_lock_wait_timeout=1 FOR UPDATE t SET v = 3 WHERE n = 1")},
			provocation{"no wait", dberr.LockTimeout, false, whileLocked("SELECT * FROM t WHERE n = 1 FOR UPDATE NOWAIT")},
			provocation{"statement timeout", dberr.Timeout, false,
				sends("SET STATEMENT max_statement_time=0.02 FOR SELECT SUM(SQRT(seq)) FROM seq_1_to_1000000000")},
			provocation{"read only", dberr.ReadOnly, true, func(p *provoker) error {
				return p.db.RunInTx(p.Context(), &sql.TxOptions{ReadOnly: true},
					func(_ context.Context, tx bun.Tx) error { return p.exec(tx, "INSERT INTO t VALUES (3, 3)") })
			}},
			provocation{"read only server", dberr.ReadOnly, true, signals("HY000", "1290")},
			provocation{"terminated", dberr.Unavailable, true, sends("KILL CONNECTION CONNECTION_ID()")},
			provocation{"disk full", dberr.Exhausted, true, signals("HY000", "1021")},
			provocation{"table full", dberr.Exhausted, true, signals("HY000", "1114")},
			provocation{"too many connections", dberr.Unavailable, true, signals("08004", "1040")},
			provocation{"long value", dberr.Refused, false, sends("INSERT INTO t VALUES (99999999999, 1)")})
	}
	return append(everywhere(),
		provocation{"busy", dberr.Unavailable, true, func(p *provoker) error {
			return p.db.RunInTx(p.Context(), nil, func(_ context.Context, tx bun.Tx) error {
				other := testdb.OpenSQLite(p.T, p.path())
				other.SetMaxOpenConns(1)
				return errors.Join(p.exec(tx, "UPDATE t SET v = 2"), p.exec(other, "PRAGMA busy_timeout = 1", "UPDATE t SET v = 3"))
			})
		}},
		provocation{"read only", dberr.ReadOnly, true, func(p *provoker) error {
			conn := testapp.Must[bun.Conn](p.T)(p.db.Conn(p.Context()))
			defer conn.Close()
			return errors.Join(p.exec(conn, "PRAGMA query_only = 1", "UPDATE t SET v = 3"), p.exec(conn, "PRAGMA query_only = 0"))
		}},
		provocation{"full", dberr.Exhausted, true, func(p *provoker) error {
			conn := testapp.Must[bun.Conn](p.T)(p.db.Conn(p.Context()))
			defer conn.Close()
			return p.exec(conn, "PRAGMA max_page_count = 1",
				"CREATE TABLE big AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 100000) SELECT x FROM n")
		}})
}

func (p *provoker) path() (path string) {
	p.Helper()
	testapp.OK(p, p.db.NewRaw("SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(p.Context(), &path))
	return filepath.Clean(path)
}

// TestDriverErrorsAreClassified provokes the classes of docs/reference/errors.md on real databases.
// Promise: counted
func TestDriverErrorsAreClassified(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		p := &provoker{t, db}
		testapp.OK(t, p.exec(db, "CREATE TABLE t (n int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1), (2, 1)"))
		for _, provoked := range provocations(db.Dialect().Name()) {
			err := provoked.run(p)
			if got := dberr.ClassOf(err); err == nil || got != provoked.want || got.Outage() != provoked.outage {
				t.Errorf("%s: got %s (outage %v) for %v, want %s (outage %v)", provoked.name, got, got.Outage(), err, provoked.want, provoked.outage)
			}
		}
		testapp.OK(t, db.Close())
		if err := p.exec(db, "SELECT 1"); dberr.ClassOf(err) != dberr.Unavailable {
			t.Errorf("a closed handle: got %s for %v, want %s", dberr.ClassOf(err), err, dberr.Unavailable)
		}
	})
}
