package store_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func TestStaleResultInTheBatchOfANewOne(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a := testapp.New(t, db, testapp.Counting("c", &n))
		a.Produce(order{ID: "1"})
		s := testapp.Must[*store.Store](t)(store.For(db.Dialect().Name(), bus.Tables{}))
		request := store.ClaimRequest{Owner: "me", Lease: time.Minute, MaxBytes: 1 << 20,
			Wants: []store.Want{{Consumer: "c", Payload: "order.placed", Limit: 1}}}
		old := testapp.Must[store.Claim](t)(s.Claims.Claim(t.Context(), db, request))
		testapp.OK(t, s.Claims.Disclaim(t.Context(), db, "me", []int64{old.ID}))
		young := testapp.Must[store.Claim](t)(s.Claims.Claim(t.Context(), db, request))
		id := young.Messages[0].ID
		testapp.Must[store.Settled](t)(s.Claims.Settle(t.Context(), db, "me", time.Minute, []store.Result{
			{Claim: young.ID, Message: id, Outcome: store.Failed, Delay: time.Hour},
			{Claim: old.ID, Message: id, Outcome: store.Done},
		}))
		if rows := a.Pending(); len(rows) != 1 || rows[0].Attempts != 1 || a.Count("SELECT count(*) FROM message_claims") != 0 {
			t.Errorf("got %+v and %d claims, want the new claim's failure and not the old one's success", rows,
				a.Count("SELECT count(*) FROM message_claims"))
		}
	})
}

// TestPoisoningFindsAFreeID: when somebody has let the ids of messages begin anew, one
// may be poisoned already.
func TestPoisoningFindsAFreeID(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error { return bus.Permanent(fmt.Errorf("no")) }))
		s := testapp.Must[*store.Store](t)(store.For(db.Dialect().Name(), bus.Tables{}))
		overriding := ""
		if db.Dialect().Name() == dialect.PG {
			overriding = " OVERRIDING SYSTEM VALUE"
		}
		again := func(n int) {
			a.Exec("INSERT INTO consumer_messages (id, message_id, consumer_type, payload_type, payload, created_at, available_after, attempts, crashes)" + overriding + " SELECT " +
				"id, message_id, consumer_type, payload_type, payload, created_at, available_after, 0, " + fmt.Sprint(n) + " FROM poisoned_messages")
		}
		a.ProduceMany(3)
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "poisoned", func() bool { return len(a.Poisoned()) == 3 && a.Empty() })
		again(0)
		testapp.Eventually(t, "poisoned again", func() bool { return len(a.Poisoned()) == 6 && a.Empty() })
		r.MustStop()
		again(2)
		for _, row := range a.Pending() {
			c, err := s.Claims.Claim(t.Context(), db, store.ClaimRequest{Owner: "gone", Lease: time.Millisecond, Select: store.Killers,
				Solo: true, Limit: 1,
				Wants: []store.Want{{Consumer: row.ConsumerType, Payload: row.PayloadType}}, MaxBytes: 1 << 20})
			if err != nil || len(c.Messages) != 1 {
				t.Fatalf("claim: got %d messages, error %v, want 1", len(c.Messages), err)
			}
		}
		testapp.Eventually(t, "recovered as poisoned", func() bool {
			if _, err := s.Claims.Recover(t.Context(), db, 3); err != nil {
				t.Fatalf("recover: %v", err)
			}
			return a.Empty()
		})
		if got := len(a.Poisoned()); got != 12 {
			t.Errorf("poisoned: got %d, want 12", got)
		}
	})
}

// TestMariaDBAcquitLeavesOthersClaimsAlone lets a process say that something runs beside its solo
// run while somebody else's claim is locked.
func TestMariaDBAcquitLeavesOthersClaimsAlone(t *testing.T) {
	t.Parallel()
	db := testdb.MariaDB(t)
	a := testapp.New(t, db)
	for _, owner := range []string{"other", "me"} {
		a.Exec(`INSERT INTO message_claims (owner, solo, claimed_at, leased_until, message_ids) VALUES (?, TRUE, 0, 0, '[1]')`, owner)
	}
	tx := testapp.Must[bun.Tx](t)(db.BeginTx(t.Context(), nil))
	defer func() { _ = tx.Rollback() }()
	testapp.OK(t, testapp.Second(tx.ExecContext(t.Context(), `SELECT * FROM message_claims WHERE id = 1 FOR UPDATE`)))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := testapp.Must[*store.Store](t)(store.For(db.Dialect().Name(), bus.Tables{})).Claims.Acquit(ctx, db, "me"); err != nil {
		t.Errorf("acquit beside a lock on another's claim: %v", err)
	}
	if n := a.Count(`SELECT count(*) FROM message_claims WHERE owner = 'me' AND NOT solo`); n != 1 {
		t.Errorf("claims of mine that are not solo: got %d, want 1", n)
	}
}
