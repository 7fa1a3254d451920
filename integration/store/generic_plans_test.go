package store_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/internal/handoff"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

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
		for _, probe := range []func(context.Context, *bun.DB, []store.Want) (store.Probe, error){l.Claims.Probe, l.Claims.ProbeDue} {
			testapp.OK(t, testapp.Second(probe(l.ctx, l.db, wants)))
		}
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
	for _, name := range []string{"pick", "record", "finish", "settle", "probe", "probe_due", "fence", "as_begun", "remove",
		"hand_off", "hand_off_one", "insert_hand_off"} {
		if !strings.Contains(seen, "asyncmonolith_"+name+"_") {
			t.Errorf("got statements %s, want %s among them", seen, name)
		}
	}
}

// claimAndSettle takes two messages that were just added and is done with one.
func (l *ledger) claimAndSettle() {
	l.Helper()
	l.add(2)
	c, err := l.Claims.Claim(l.ctx, l.db, ledgerRequest("a", 10))
	if err != nil || len(c.Messages) != 2 {
		l.Fatalf("claim: got %d messages, %v, want 2", len(c.Messages), err)
	}
	for _, m := range c.Messages {
		r := store.Result{Claim: c.ID, Message: m.ID, Outcome: store.Done}
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
	if ok, err := l.Outbox.InsertAs(l.ctx, tx.Tx, rows, ids); err != nil || !ok {
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
