package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

var errOutOfOrder = errors.New("out of order")

// inOrder is a consumer of steps that writes each down in its transaction, and wants those
// before it to be there, and no other.
func inOrder(fails int) func(context.Context, bun.Tx, step) error {
	return func(ctx context.Context, tx bun.Tx, s step) error {
		var before int
		if err := tx.NewRaw("SELECT count(*) FROM taken WHERE customer = ?", s.Customer).Scan(ctx, &before); err != nil {
			return err
		}
		if before != s.N-1 {
			return bus.Permanent(fmt.Errorf("%w: %d of %s ran after %d", errOutOfOrder, s.N, s.Customer, before))
		}
		if _, err := tx.NewRaw("INSERT INTO taken (customer, n) VALUES (?, ?)", s.Customer, s.N).Exec(ctx); err != nil {
			return err
		}
		if fails > 0 && rand.IntN(fails) == 0 {
			return errors.New("not this time")
		}
		return nil
	}
}

// TestTransactionalMessagesOfAKeyRunInOrder, each in a transaction of its own, and many in one.
func TestTransactionalMessagesOfAKeyRunInOrder(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]bus.ConsumerOption{"one by one": nil, "in groups": {outbox.GroupCommit(10)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				consumer := outbox.ConsumeTx("c", inOrder(30), append(options, bus.Ordered(bus.ParkKey), bus.AttemptDelay(5*time.Millisecond), bus.MaxAttempts(100), bus.Timeout(time.Second))...)
				a := testapp.New(t, db, consumer)
				a.Exec("CREATE TABLE taken (customer VARCHAR(20), n INTEGER, UNIQUE (customer, n))")
				const keys, each = 8, 40
				for n := 1; n <= each; n += 4 {
					var items []outbox.Item
					for k := range keys {
						for i := range 4 {
							items = append(items, outbox.Item{Payload: step{fmt.Sprint(k), n + i}})
						}
					}
					testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, items...))
				}
				var processors []*testapp.Running
				for range 2 {
					processors = append(processors, a.Start(testapp.Fast()))
				}
				testapp.Eventually(t, "all ran", func() bool { return a.Empty() || len(a.Poisoned()) > 0 })
				for _, r := range processors {
					r.MustStop()
				}
				for _, p := range a.Poisoned() {
					t.Errorf("poisoned: %s", p.Errors)
				}
				if n := a.Count("SELECT count(*) FROM taken"); n != keys*each {
					t.Errorf("got %d effects, want %d", n, keys*each)
				}
			})
		})
	}
}
