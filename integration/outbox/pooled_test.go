package outbox_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Each transaction may run on another connection of the server's, which has not planned what the last one has. No attempt
// is spent for that.
func TestTransactionsBehindAPoolerSpendNoAttempt(t *testing.T) {
	t.Parallel()
	dsn := testdb.Pgbouncer(t, testdb.PostgresDSN(t))
	const messages = 100
	for range 8 { // connections plan when they are new
		var a *app
		var ran atomic.Int64
		a = testapp.New(t, testdb.OpenPostgres(t, dsn), outbox.ConsumeTx("c", func(ctx context.Context, tx bun.Tx, o order) error {
			if ran.Add(1)%2 == 0 {
				return nil
			}
			_, err := a.Producer.Produce(ctx, tx, refund{ID: o.ID})
			return err
		}, bus.MaxAttempts(1)), bus.Consume("d", func(context.Context, refund) error { return nil }))
		a.ProduceMany(messages)
		r := a.Start(outbox.ProcessorConfig{})
		testapp.Eventually(t, "all is done", a.Empty)
		r.MustStop()
		if n := a.Count("SELECT count(*) FROM poisoned_messages"); n > 0 || ran.Load() < messages {
			t.Errorf("got %d poisoned messages and %d runs, want none and %d or more", n, ran.Load(), messages)
		}
	}
}
