package store_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/handoff"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// claimAndFinish takes a message that was just added and is done with it.
func (l *ledger) claimAndFinish(db *bun.DB) {
	l.Helper()
	l.add(1)
	c, err := l.Claims.Claim(l.ctx, db, ledgerRequest("a", 10))
	if err != nil || len(c.Messages) != 1 {
		l.Fatalf("claim: got %d messages, %v, want 1", len(c.Messages), err)
	}
	if done, err := l.Claims.Finish(l.ctx, db, "a", []int64{c.ID}); err != nil || len(done) != 1 {
		l.Fatalf("finish: got %v, %v, want one claim", done, err)
	}
}

// TestAPoolerThatLosesPlansIsNoticed: behind pgbouncer the next transaction may run on
// another connection of the server, which has not prepared the statement.
func TestAPoolerThatLosesPlansIsNoticed(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	dsn := testdb.Pgbouncer(t, l.dsn)
	db, other := testdb.OpenPostgres(t, dsn), testdb.OpenPostgres(t, dsn)
	l.claimAndFinish(db)
	if l.Unprepared() {
		t.Error("got statements sent as text, want them prepared while nobody else is there")
	}
	err := other.RunInTx(l.ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.ExecContext(ctx, "SELECT 1"); err != nil { // takes the connection
			return err
		}
		l.claimAndFinish(db)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !l.Unprepared() {
		t.Error("got statements prepared again, want them sent as text")
	}
	l.claimAndFinish(db)
}

// TestEveryConnectionPlansForItself: what one has prepared another does not know.
func TestEveryConnectionPlansForItself(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.claimAndFinish(l.db)
	err := l.db.RunInTx(l.ctx, nil, func(ctx context.Context, tx bun.Tx) error { // takes that connection
		if _, err := tx.ExecContext(ctx, "SELECT 1"); err != nil {
			return err
		}
		l.claimAndFinish(l.db)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if l.Unprepared() {
		t.Error("got statements sent as text, want them prepared on both connections")
	}
}

// TestPlansThatAMigrationInvalidatesAreMadeAgain: the error reaches nobody.
func TestPlansThatAMigrationInvalidatesAreMadeAgain(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.db.SetMaxOpenConns(1)
	for _, change := range []string{"", "ALTER TABLE consumer_messages ALTER COLUMN headers TYPE varchar",
		"ALTER TABLE consumer_messages ALTER COLUMN attempts TYPE bigint"} {
		if change != "" {
			l.exec(change)
		}
		for range 8 { // more often than a plan is made for the values alone
			l.claimAndFinish(l.db)
		}
		if l.Unprepared() {
			t.Fatalf("%s: got statements sent as text, want them prepared again", change)
		}
	}
}

// TestPlansOfForgottenConnections: a session that was reset has none, and a name that is
// taken is no error.
func TestPlansOfForgottenConnections(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.db.SetMaxOpenConns(1)
	l.claimAndFinish(l.db)
	again, err := store.For(l.db.Dialect().Name(), bus.Tables{}) // knows nothing of the connection
	if err != nil {
		t.Fatal(err)
	}
	first := l.Store
	l.Store = again
	l.claimAndFinish(l.db)
	if l.Unprepared() {
		t.Error("got statements sent as text, want those used that are there")
	}
	l.exec("DISCARD ALL")
	l.claimAndFinish(l.db)
	if !l.Unprepared() || first.Unprepared() {
		t.Errorf("got %t, %t, want text, and that only where it was noticed", l.Unprepared(), first.Unprepared())
	}
}

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
	if _, err := l.Claims.Poll(l.ctx, db, ledgerWants(1)); err != nil {
		t.Errorf("poll: got %v, want another connection tried", err)
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

// TestProcessorsStatementsArePlannedOnce: PostgreSQL goes on with a plan for any values, once it has planned for the values
// alone five times. It counts both since version 14.
func TestProcessorsStatementsArePlannedOnce(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.db.SetMaxOpenConns(1)
	var version int
	testapp.OK(t, l.db.NewRaw("SELECT current_setting('server_version_num')::int").Scan(l.ctx, &version))
	counts := "generic_plans, custom_plans"
	if version < 14_00_00 {
		counts = "6 AS generic_plans, 5 AS custom_plans" // what is prepared at all is seen
	}
	wants := ledgerRequest("a", 10).Wants
	for range 10 {
		l.claimAndFinish(l.db)
		testapp.OK(t, testapp.Second(l.Claims.Poll(l.ctx, l.db, wants)))
		testapp.OK(t, testapp.Second(l.Claims.PollNow(l.ctx, l.db, wants)))
		testapp.OK(t, testapp.Second(l.Claims.PollDue(l.ctx, l.db, wants)))
		l.claimAndSettle()
		l.claimAndRemove()
		l.handOff(1)
		l.handOff(2)
		l.insertHandOff()
	}
	var rows []struct {
		Name                      string
		GenericPlans, CustomPlans int
	}
	testapp.OK(t, l.db.NewRaw("SELECT name, "+counts+" FROM pg_prepared_statements WHERE name LIKE 'asyncmonolith%'").Scan(l.ctx, &rows))
	seen := ""
	for _, row := range rows {
		seen += row.Name + " "
		if row.GenericPlans == 0 || row.CustomPlans > 5 {
			t.Errorf("%s: got %d plans for any values and %d for certain ones, want 5 of the latter at most", row.Name, row.GenericPlans, row.CustomPlans)
		}
	}
	for _, name := range []string{"pick", "record", "finish", "settle", "settle_keep", "poll", "poll_due", "fence", "as_begun", "remove",
		"insert", "hand_off", "hand_off_one", "insert_hand_off"} {
		if !strings.Contains(seen, "asyncmonolith_"+name+"_") {
			t.Errorf("got statements %s, want %s among them", seen, name)
		}
	}
}

// claimAndSettle takes two messages that were just added, is done with each by itself, and keeps the second.
func (l *ledger) claimAndSettle() {
	l.Helper()
	l.add(2)
	c, err := l.Claims.Claim(l.ctx, l.db, ledgerRequest("a", 10))
	if err != nil || len(c.Messages) != 2 {
		l.Fatalf("claim: got %d messages, %v, want 2", len(c.Messages), err)
	}
	for i, m := range c.Messages {
		r := store.Result{Claim: c.ID, Message: m.ID, Outcome: store.Done}
		if i == 1 {
			r.Kept = &store.Kept{ID: m.ID, MessageID: m.MessageID, CreatedAt: m.CreatedAt.Time, For: time.Hour}
		}
		if settled, err := l.Claims.Settle(l.ctx, l.db, "a", time.Minute, []store.Result{r}); err != nil || settled.Applied != 1 {
			l.Fatalf("settle: got %+v, %v, want 1 applied", settled, err)
		}
	}
}

// claimAndRemove takes a message that was just added and removes it in a transaction, as that of a consumer.
func (l *ledger) claimAndRemove() {
	l.Helper()
	l.add(1)
	c, err := l.Claims.Claim(l.ctx, l.db, ledgerRequest("a", 10))
	if err != nil || len(c.Messages) != 1 {
		l.Fatalf("claim: got %d messages, %v, want 1", len(c.Messages), err)
	}
	tx, err := l.Claims.BeginRun(l.ctx, l.db)
	if err != nil {
		l.Fatal(err)
	}
	var session store.Session
	f := store.Fence{Owner: "a", Idle: time.Minute, Session: &session, Messages: []store.Fenced{{Claim: c.ID, ID: c.Messages[0].ID}}}
	if held, err := l.Claims.Fence(l.ctx, tx, f); err != nil || len(held) != 1 {
		l.Fatalf("fence: got %v, %v, want 1 message", held, err)
	}
	if n, err := l.Claims.Remove(l.ctx, tx, session, c.Messages[0].ID); err != nil || n != 1 {
		l.Fatalf("remove: got %d, %v, want 1", n, err)
	}
	testapp.OK(l, tx.Commit())
	testapp.OK(l, tx.Plans.Close())
	testapp.OK(l, l.Claims.Disclaim(l.ctx, l.db, "a", []int64{c.ID}))
}

// newRows returns rows that may be handed off, and ids for them.
func (l *ledger) newRows(n int) (rows []store.NewMessage, ids handoff.IDs) {
	l.Helper()
	ids, err := l.Outbox.MessageIDs(l.ctx, l.db, n)
	testapp.OK(l, err)
	for range n {
		rows = append(rows, store.NewMessage{MessageID: uuid.New(), ConsumerType: "handed", PayloadType: "p", Payload: "{}"})
	}
	return rows, ids
}

// handOff writes messages and their claim in a transaction, as that of a producer.
func (l *ledger) handOff(n int) {
	l.Helper()
	rows, ids := l.newRows(n)
	tx, err := l.Outbox.BeginProducing(l.ctx, l.db)
	testapp.OK(l, err)
	if ok, err := l.Outbox.InsertAs(l.ctx, tx.Tx, rows, ids, tx.Plans != nil); err != nil || !ok {
		l.Fatalf("insert: got %v, %v, want true", ok, err)
	}
	h := store.HandOff{Owner: "a", Lease: time.Minute, Messages: ids.IDs, Planned: tx.Plans != nil}
	if claimed, err := l.Claims.HandOff(l.ctx, tx.Tx, h); err != nil || !claimed || !h.Planned {
		l.Fatalf("hand off: got %v, %v, planned: %v, want true", claimed, err, h.Planned)
	}
	testapp.OK(l, tx.Commit())
	tx.GiveBack()
}

// insertHandOff writes a message with its claim.
func (l *ledger) insertHandOff() {
	l.Helper()
	rows, ids := l.newRows(1)
	h := store.HandOff{Owner: "a", Lease: time.Minute, Messages: ids.IDs}
	if claimed, err := l.Outbox.InsertHandOff(l.ctx, l.db, rows, ids, h); err != nil || !claimed {
		l.Fatalf("insert with a claim: got %v, %v, want true", claimed, err)
	}
	ids.Origin = "another table's"
	if _, err := l.Outbox.InsertHandOff(l.ctx, l.db, rows, ids, h); err == nil {
		l.Errorf("insert with a claim under ids of another origin: got no error")
	}
}
