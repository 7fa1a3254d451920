package outbox_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestNothingWaitsInASoloClaim has a suspect whose consumer is busy: it is not claimed
// solo until it can run, since it would be blamed when its process dies.
func TestNothingWaitsInASoloClaim(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var ran atomic.Int64
		running, finish := make(chan struct{}), make(chan struct{})
		a := testapp.New(t, db, bus.Consume("c", func(ctx context.Context, o order) error {
			if o.ID == "suspect" {
				ran.Add(1)
				return nil
			}
			close(running)
			<-finish
			return nil
		}, bus.Timeout(time.Minute), bus.Concurrency(1)))
		a.Produce(order{ID: "long"})
		a.Start(outbox.ProcessorConfig{LeaseDuration: time.Second, PollInterval: 50 * time.Millisecond})
		<-running
		a.Produce(order{ID: "suspect"})
		a.Exec(`UPDATE consumer_messages SET crashes = 2 WHERE payload LIKE '%suspect%'`)
		// Calm has lasted for long enough after 3 s.
		ticks := time.NewTicker(20 * time.Millisecond)
		defer ticks.Stop()
		for range 225 {
			<-ticks.C
			if n := a.Count(`SELECT count(*) FROM message_claims WHERE solo`); n > 0 {
				t.Fatalf("claims that are solo while nothing of them can run: got %d, want none", n)
			}
		}
		close(finish)
		testapp.Eventually(t, "the suspect has run", func() bool { return ran.Load() == 1 })
	})
}
