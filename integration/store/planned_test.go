package store_test

import (
	"context"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
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
