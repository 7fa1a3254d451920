package store_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// valued opens connections of pgx that are values which cannot be compared. While dead is
// set, those that were used before are dead.
type valued struct {
	driver.Connector
	dead *atomic.Bool
}

func (v valued) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := v.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return valuedConn{pgxConn: conn.(pgxConn), dead: v.dead, used: new(atomic.Bool)}, nil
}

// open opens the ledger's database with them.
func (v valued) open(l *ledger) *sql.DB {
	l.Helper()
	config := testapp.Must[*pgx.ConnConfig](l)(pgx.ParseConfig(l.dsn))
	v.Connector = stdlib.GetConnector(*config)
	return sql.OpenDB(v)
}

// pgxConn is what database/sql may ask for, and not what else pgx offers.
type pgxConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
	driver.NamedValueChecker
}

type valuedConn struct {
	pgxConn
	dead, used *atomic.Bool
	_          []int // cannot be compared
}

// use fails of a dead connection.
func (c valuedConn) use() error {
	if c.used.Swap(true) && c.dead.Load() {
		return driver.ErrBadConn
	}
	return nil
}

func (c valuedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.use(); err != nil {
		return nil, err
	}
	return c.pgxConn.ExecContext(ctx, query, args)
}

func (c valuedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.use(); err != nil {
		return nil, err
	}
	return c.pgxConn.QueryContext(ctx, query, args)
}

// TestConnectionsOfAnyKindArePlannedFor, or else sent text.
func TestConnectionsOfAnyKindArePlannedFor(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	pool := testapp.Must[*pgxpool.Pool](t)(pgxpool.New(l.ctx, l.dsn))
	t.Cleanup(pool.Close)
	for name, conns := range map[string]*sql.DB{
		"a pool of the driver's own": stdlib.OpenDBFromPool(pool),
		"values":                     valued{dead: new(atomic.Bool)}.open(l),
	} {
		var failed failures
		db := bun.NewDB(conns, pgdialect.New()).WithQueryHook(&failed)
		for range 4 {
			l.claimAndFinish(db)
		}
		if n := failed.n.Load(); n > 0 || l.Unprepared() {
			t.Errorf("%s: got %d statements that failed, unprepared %t, want none", name, n, l.Unprepared())
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

type failures struct{ n atomic.Int64 }

func (f *failures) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context { return ctx }

func (f *failures) AfterQuery(_ context.Context, e *bun.QueryEvent) {
	if e.Err != nil {
		f.n.Add(1)
	}
}

// TestDeadConnectionsOfThePoolAreReplaced, as database/sql does where it chooses them.
func TestDeadConnectionsOfThePoolAreReplaced(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	dead := new(atomic.Bool)
	db := bun.NewDB(valued{dead: dead}.open(l), pgdialect.New())
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxIdleConns(5)
	var resting []bun.Conn
	for range 5 {
		conn := testapp.Must[bun.Conn](t)(db.Conn(l.ctx))
		testapp.OK(t, testapp.Second(conn.ExecContext(l.ctx, "SELECT 1")))
		resting = append(resting, conn)
	}
	for _, conn := range resting {
		_ = conn.Close()
	}
	dead.Store(true)
	if _, err := l.Claims.Probe(l.ctx, db, ledgerWants(1)); err != nil {
		t.Errorf("probe: got %v, want another connection tried", err)
	}
}

// TestAStatementThatCannotBePreparedOnceIsSentAsTextOnce: what stood in the way may be over.
func TestAStatementThatCannotBePreparedOnceIsSentAsTextOnce(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.exec("CREATE SCHEMA q")
	inSchema := testapp.Must[*store.Store](t)(store.For(l.db.Dialect().Name(), bus.Tables{Schema: "q"}))
	l.Store = inSchema
	testapp.OK(t, l.Schema.Migrate(l.ctx, l.db))
	role := fmt.Sprintf("bare_%d", l.number("SELECT pg_backend_pid()"))
	l.db.SetMaxOpenConns(1)
	l.exec("CREATE ROLE " + role)
	l.exec("SET ROLE " + role)
	if _, err := l.Claims.Finish(l.ctx, l.db, "a", []int64{1}); err == nil || l.Unprepared() {
		t.Errorf("finish without the permission: got error %v, unprepared %t, want an error, and not", err, l.Unprepared())
	}
	l.exec("RESET ROLE")
	l.exec("DROP ROLE " + role)
	l.claimAndFinish(l.db)
}
