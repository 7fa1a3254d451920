package store_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// TestPostgresSettlesUnlockedMessagesAtOnce: a message that another transaction has locked is left for later, and the others of the
// same statement do not wait for it.
// Promise: held-up
func TestPostgresSettlesUnlockedMessagesAtOnce(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for i := range 3 {
		row := store.NewMessage{ConsumerType: "c", PayloadType: "p", Payload: "{}", MessageID: uuid.UUID{byte(i + 1)}}
		_ = testapp.Must[map[uuid.UUID]int](t)(l.Outbox.Insert(l.ctx, l.db, []store.NewMessage{row}))
	}
	held := testapp.Must[store.Claim](t)(l.Claims.Claim(l.ctx, l.db, store.ClaimRequest{Owner: "a", Lease: time.Minute,
		Wants: []store.Want{{Consumer: "c", Payload: "p", Limit: 3}}, MaxBytes: 1 << 20}))
	var results []store.Result
	for _, m := range held.Messages {
		results = append(results, store.Result{Claim: held.ID, Message: m.ID, Outcome: store.Done})
	}
	holder := testapp.Must[bun.Tx](t)(l.db.BeginTx(l.ctx, nil))
	t.Cleanup(func() { _ = holder.Rollback() })
	testapp.OK(t, testapp.Second(holder.NewRaw("SELECT id FROM consumer_messages WHERE id = ? FOR UPDATE", results[1].Message).Exec(l.ctx)))
	ctx, cancel := context.WithTimeout(l.ctx, 10*time.Second)
	defer cancel()
	settled, err := l.Claims.SettleFree(ctx, l.db, "a", time.Minute, results)
	if err != nil || settled.Applied != 2 || !slices.Equal(settled.Busy, results[1:2]) {
		t.Fatalf("beside a locked message: got %+v, error %v, want 2 applied and 1 busy", settled, err)
	}
	testapp.OK(t, holder.Rollback())
	if settled, err := l.Claims.SettleFree(ctx, l.db, "a", time.Minute, results[1:2]); err != nil || settled.Applied != 1 {
		t.Errorf("once the lock is gone: got %+v, error %v, want 1 applied", settled, err)
	}
}
