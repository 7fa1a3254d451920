package eventlog_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// TestAnAbortedTransactionDoesNotDelayOthers: on PostgreSQL a statement that fails takes all others of the transaction with it,
// also when the function gives the event up, or does not return the error.
func TestAnAbortedTransactionDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		discards bool
		parked   int
	}{"discarded": {true, 0}, "not returned": {false, 1}} {
		for _, batch := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, in batches %v", name, batch), func(t *testing.T) {
				t.Parallel()
				l := newLedger(t, testdb.Postgres(t))
				p := balances()
				p.Name, p.OnError, p.MaxAttempts = "p", projection.Park, 2
				handle := func(ctx context.Context, tx bun.Tx, stream string, amount int) error {
					if _, err := tx.NewRaw("INSERT INTO applied VALUES (?, ?, '')", stream, amount).Exec(ctx); err != nil {
						return err
					}
					if amount != 2 {
						return nil
					}
					if _, err := tx.NewRaw("INSERT INTO nonsense VALUES (1)").Exec(ctx); test.discards {
						return bus.Discard(err)
					}
					return nil
				}
				p.On = []projection.Handler{projection.On(func(ctx context.Context, tx bun.Tx,
					e moved) error {
					return handle(ctx, tx, "account-1", e.Amount)
				})}
				if batch {
					p.On, p.Types = nil, []string{"account.moved"}
					p.Batch = func(ctx context.Context, tx bun.Tx, events []eventlog.RecordedEvent) error {
						for _, e := range events {
							if err := handle(ctx, tx, e.Stream, e.Data.(moved).Amount); err != nil {
								return err
							}
						}
						return nil
					}
				}
				r := l.runner(p)
				running(t, "runner", r.Run)
				l.append("account-1", eventlog.AnyVersion, moved{1}, moved{2}, moved{3}, moved{4}, moved{5})
				eventually(t, "all but one are applied", func() bool { return l.count("SELECT count(*) FROM applied") == 4 })
				eventually(t, "the shard is at the end", func() bool { return l.count("SELECT position FROM event_subscriptions") == 5 })
				stats, err := r.Stats(l.ctx)
				if err != nil || stats[0].Parked != test.parked || stats[0].Halted != 0 || r.Health().Err != nil {
					t.Errorf("got %+v, error %v, health %v, want %d parked and no outage", stats, err, r.Health().Err, test.parked)
				}
			})
		}
	}
}
