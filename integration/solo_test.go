package integration_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestNothingWaitsInASoloClaim has a suspect whose consumer is busy: it is not claimed
// solo until it can run, since it would be blamed when its process dies.
func TestNothingWaitsInASoloClaim(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var ran atomic.Int64
		running, finish := make(chan struct{}), make(chan struct{})
		a := newApp(t, db, bus.Consume("c", func(ctx context.Context, o order) error {
			if o.ID == "suspect" {
				ran.Add(1)
				return nil
			}
			close(running)
			<-finish
			return nil
		}, bus.Timeout(time.Minute), bus.Concurrency(1)))
		a.produce(order{ID: "long"})
		a.start(outbox.ProcessorConfig{LeaseDuration: time.Second, PollInterval: 50 * time.Millisecond})
		<-running
		a.produce(order{ID: "suspect"})
		a.exec(`UPDATE consumer_messages SET crashes = 2 WHERE payload LIKE '%suspect%'`)
		// Calm has lasted for long enough after 3 s.
		ticks := time.NewTicker(20 * time.Millisecond)
		defer ticks.Stop()
		for range 225 {
			<-ticks.C
			if n := a.count(`SELECT count(*) FROM message_claims WHERE solo`); n > 0 {
				t.Fatalf("claims that are solo while nothing of them can run: got %d, want none", n)
			}
		}
		close(finish)
		eventually(t, "the suspect has run", func() bool { return ran.Load() == 1 })
	})
}

// TestAcquitLeavesOthersClaimsAlone lets a process say that something runs beside its solo
// run while somebody else's claim is locked.
func TestAcquitLeavesOthersClaimsAlone(t *testing.T) {
	t.Parallel()
	db := testdb.MariaDB(t)
	a := newApp(t, db)
	for _, owner := range []string{"other", "me"} {
		a.exec(`INSERT INTO message_claims (owner, solo, claimed_at, leased_until, message_ids) VALUES (?, TRUE, 0, 0, '[1]')`, owner)
	}
	tx := must[bun.Tx](t)(db.BeginTx(t.Context(), nil))
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `SELECT * FROM message_claims WHERE id = 1 FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := must[*store.Store](t)(store.For(db.Dialect().Name(), bus.Tables{})).Acquit(ctx, db, "me"); err != nil {
		t.Errorf("acquit beside a lock on another's claim: %v", err)
	}
	if n := a.count(`SELECT count(*) FROM message_claims WHERE owner = 'me' AND NOT solo`); n != 1 {
		t.Errorf("claims of mine that are not solo: got %d, want 1", n)
	}
}
