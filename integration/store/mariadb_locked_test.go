package store_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// mariaLocker is a claim of four messages: an open transaction has met the insert id of
// the first and locked the second, the third is gone, and the fourth is free.
type mariaLocker struct {
	*testing.T
	*store.Store
	db   *bun.DB
	held store.Claim
	tx   bun.Tx
}

func newMariaLocker(t *testing.T) *mariaLocker {
	t.Helper()
	l := &mariaLocker{T: t, db: testdb.MariaDB(t)}
	l.Store = mariaStore(t, l.db)
	for i, insertID := range []string{"met", "", "", "free"} {
		row := store.NewMessage{ConsumerType: "c", PayloadType: "p", Payload: "{}", InsertID: insertID, MessageID: uuid.UUID{byte(i)}}
		_ = testapp.Must[map[uuid.UUID]int](t)(l.Outbox.Insert(t.Context(), l.db, []store.NewMessage{row}))
	}
	l.held = testapp.Must[store.Claim](t)(l.Claims.Claim(t.Context(), l.db, store.ClaimRequest{Owner: "a", Lease: time.Minute,
		Wants: []store.Want{{Consumer: "c", Payload: "p", Limit: 4}}, MaxBytes: 1 << 20}))
	if len(l.held.Messages) != 4 {
		t.Fatalf("claimed: got %d messages, want 4", len(l.held.Messages))
	}
	slices.SortFunc(l.held.Messages, func(a, b store.Message) int { return int(a.ID - b.ID) })
	l.tx = testapp.Must[bun.Tx](t)(l.db.BeginTx(context.WithoutCancel(t.Context()), nil))
	t.Cleanup(func() { _ = l.tx.Rollback() })
	again := store.NewMessage{ConsumerType: "c", PayloadType: "p", Payload: "{}", InsertID: "met", MessageID: uuid.UUID{9}}
	if written, err := l.Outbox.Insert(t.Context(), l.tx, []store.NewMessage{again}); err != nil || len(written) != 0 {
		t.Fatalf("insert of an insert id that is pending: got %v, error %v, want nothing written", written, err)
	}
	if _, err := l.tx.NewRaw("SELECT id FROM consumer_messages WHERE id = ? FOR UPDATE", l.held.Messages[1].ID).Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	testapp.OK(t, testapp.Second(l.db.NewRaw("DELETE FROM consumer_messages WHERE id = ?", l.held.Messages[2].ID).Exec(t.Context())))
	return l
}

// results gives the four messages these outcomes.
func (l *mariaLocker) results(outcomes ...store.Outcome) (results []store.Result) {
	for i, outcome := range outcomes {
		results = append(results, store.Result{Claim: l.held.ID, Message: l.held.Messages[i].ID, Outcome: outcome, Delay: time.Hour})
	}
	return results
}

func (l *mariaLocker) left() (n int) {
	l.Helper()
	testapp.OK(l, l.db.NewRaw("SELECT JSON_LENGTH(message_ids) FROM message_claims").Scan(l.Context(), &n))
	return n
}

// TestMariaDBSettlesWhatIsFree: what is settled with a message that somebody has locked
// does not wait for it, and nothing is lost.
func TestMariaDBSettlesWhatIsFree(t *testing.T) {
	t.Parallel()
	l := newMariaLocker(t)
	results := append(l.results(store.Done, store.Failed, store.Done, store.Done),
		store.Result{Claim: 1000, Message: l.held.Messages[0].ID, Outcome: store.Done})
	for what, statement := range map[string]func() error{
		"settle": func() error { _, err := l.Claims.Settle(t.Context(), l.db, "a", time.Minute, results); return err },
		"finish": func() error { _, err := l.Claims.Finish(t.Context(), l.db, "a", []int64{l.held.ID}); return err },
	} {
		began := time.Now()
		if err := statement(); !dberr.IsLockTimeout(err) || time.Since(began) > 30*time.Second || l.left() != 4 {
			t.Errorf("%s: got error %v after %s and %d messages in the claim, want a lock timeout after a second and all 4", what, err,
				time.Since(began), l.left())
		}
	}
	settled, err := l.Claims.SettleFree(t.Context(), l.db, "a", time.Minute, results)
	if err != nil || settled.Applied != 2 || !slices.Equal(settled.Live, []int64{l.held.ID}) ||
		!slices.Equal(settled.Busy, results[:2]) || l.left() != 2 {
		t.Fatalf("settle what is free: got %+v, error %v, %d left in the claim, want 2 applied and 2 busy", settled, err, l.left())
	}
	testapp.OK(t, l.tx.Rollback())
	if settled, err := l.Claims.SettleFree(t.Context(), l.db, "a", time.Minute, l.results(store.Done, store.Failed)); err != nil ||
		settled.Applied != 2 || len(settled.Busy) != 0 {
		t.Errorf("settle once the transaction is over: got %+v, error %v, want 2 applied", settled, err)
	}
}

// TestMariaDBAdminLeavesWhatIsLocked: what people change does not wait either.
func TestMariaDBAdminLeavesWhatIsLocked(t *testing.T) {
	t.Parallel()
	l := newMariaLocker(t)
	ids := make([]int64, len(l.held.Messages))
	for i, m := range l.held.Messages {
		ids[i] = m.ID
	}
	testapp.OK(t, l.Claims.Disclaim(t.Context(), l.db, "a", []int64{l.held.ID}))
	a := testapp.New(t, l.db, testapp.Consumed("c"))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	result, err := a.Admin().Cancel(ctx, l.db, ids...)
	if err != nil || result.Changed != 1 || !slices.Equal(result.Running, ids[:2]) {
		t.Errorf("cancel: got %+v, error %v, want the last one changed, and the two that are locked left", result, err)
	}
}

// TestMariaDBReleasesWhatIsLocked: a release touches no message, so it waits for none.
func TestMariaDBReleasesWhatIsLocked(t *testing.T) {
	t.Parallel()
	l := newMariaLocker(t)
	settled, err := l.Claims.SettleFree(t.Context(), l.db, "a", time.Minute, l.results(store.Release, store.Release))
	if err != nil || settled.Applied != 2 || len(settled.Busy) != 0 || l.left() != 2 {
		t.Errorf("release: got %+v, error %v, %d left in the claim, want 2 applied", settled, err, l.left())
	}
}

// TestMariaDBLetsGoOfClaims: the server goes on with a statement whose client has hung
// up; the claims must not stay locked for as long as a message is.
func TestMariaDBLetsGoOfClaims(t *testing.T) {
	t.Parallel()
	l := newMariaLocker(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := l.Claims.Settle(ctx, l.db, "a", time.Minute, l.results(store.Done)); err == nil {
		t.Fatal("settle of a locked message: got no error, want one of the context")
	}
	ctx, cancel = context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if held, err := l.Claims.Extend(ctx, l.db, "a", time.Minute); err != nil || !slices.Equal(held, []int64{l.held.ID}) {
		t.Errorf("extend right after: got %v, error %v, want the claim renewed", held, err)
	}
}

// TestMariaDBRenewalMissesWhatIsTakenAway: what is taken away while a renewal waits for
// it was there when the renewal asked what there is, and is lost all the same.
func TestMariaDBRenewalMissesWhatIsTakenAway(t *testing.T) {
	t.Parallel()
	l := newMariaLocker(t)
	taker := testapp.Must[bun.Tx](t)(l.db.BeginTx(t.Context(), nil))
	defer func() { _ = taker.Rollback() }()
	testapp.OK(t, testapp.Second(taker.NewRaw("DELETE FROM message_claims WHERE id = ?", l.held.ID).Exec(t.Context())))
	var held []int64
	var extended error
	var renewal sync.WaitGroup
	renewal.Go(func() { held, extended = l.Claims.Extend(t.Context(), l.db, "a", time.Minute) })
	testapp.Eventually(t, "the renewal waits", func() (waits bool) {
		err := l.db.NewRaw("SELECT COUNT(*) > 0 FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND INFO LIKE '%SET c.leased_until%' AND ID <> CONNECTION_ID()").Scan(t.Context(), &waits)
		return err != nil || waits
	})
	if err := taker.Commit(); err != nil {
		t.Error(err)
	}
	renewal.Wait()
	if extended != nil || len(held) != 0 {
		t.Errorf("extend: got %v, error %v, want nothing renewed", held, extended)
	}
}
