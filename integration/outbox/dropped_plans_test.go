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

// TestAConsumerMayDropPreparedStatements: its connection then lacks those of the library, too. The run that dropped them fails,
// and none after it.
func TestAConsumerMayDropPreparedStatements(t *testing.T) {
	t.Parallel()
	var ran, dropped atomic.Int64
	a := testapp.New(t, testdb.Postgres(t), outbox.ConsumeTx("c", func(ctx context.Context, tx bun.Tx, o order) error {
		if ran.Add(1); o.ID == "drops" && dropped.Add(1) == 1 {
			if _, err := tx.ExecContext(ctx, "DEALLOCATE ALL"); err != nil {
				return err
			}
		}
		return nil
	}, bus.AttemptDelay(time.Millisecond)))
	r := a.Start(testapp.Fast())
	for _, id := range []string{"before", "drops", "after", "after"} {
		a.Produce(order{ID: id})
		testapp.Eventually(t, "all are consumed", a.Empty)
	}
	r.MustStop()
	if got := ran.Load(); got != 5 {
		t.Errorf("got %d runs of 4 messages, want 5: one failed", got)
	}
}
