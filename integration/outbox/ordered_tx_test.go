package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// inOrder is a consumer of steps that writes each down in its transaction, and wants those
// before it to be there, and no other: else it says so in wrong.
func inOrder(fails int, wrong *atomic.Value) func(context.Context, bun.Tx, step) error {
	return func(ctx context.Context, tx bun.Tx, s step) error {
		var before int
		if err := tx.NewRaw("SELECT count(*) FROM taken WHERE customer = ?", s.Customer).Scan(ctx, &before); err != nil {
			return err
		}
		if before != s.N-1 {
			wrong.Store(fmt.Sprintf("out of order: %d of %s ran after %d", s.N, s.Customer, before))
			return errors.New("it is not its turn")
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

func inOrderOptions() []bus.ConsumerOption {
	return []bus.ConsumerOption{bus.Ordered(bus.BlockKey), bus.AttemptDelay(5 * time.Millisecond), bus.MaxAttempts(100),
		bus.Timeout(5 * time.Second)}
}

// TestTransactionalMessagesOfAKeyRunInOrder, each in a transaction of its own, many in one, and in batches.
func TestTransactionalMessagesOfAKeyRunInOrder(t *testing.T) {
	t.Parallel()
	var wrong atomic.Value
	single := func(options ...bus.ConsumerOption) bus.Consumer {
		return outbox.ConsumeTx("c", inOrder(30, &wrong), options...)
	}
	batched := func(options ...bus.ConsumerOption) bus.Consumer {
		return outbox.ConsumeBatchTx("c", func(ctx context.Context, tx bun.Tx, steps []step) error {
			failed := bus.BatchError{}
			for i, s := range steps {
				failed[i] = inOrder(60, &wrong)(ctx, tx, s)
			}
			return failed
		}, options...)
	}
	for name, consumer := range map[string]bus.Consumer{
		"one by one": single(inOrderOptions()...), "in groups": single(append(inOrderOptions(),
			outbox.GroupCommit(10))...), "in batches": batched(append(inOrderOptions(), bus.BatchSize(20))...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				a := testapp.New(t, db, consumer)
				a.Exec("CREATE TABLE taken (customer VARCHAR(20), n INTEGER, UNIQUE (customer, n))")
				const keys, each = 4, 24
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
				if said := wrong.Load(); said != nil {
					t.Error(said)
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

// TestACommitThatFailsDelaysItsKey and no other: whoever is to blame is found, and none behind it
// runs before it.
func TestACommitThatFailsDelaysItsKey(t *testing.T) {
	t.Parallel()
	var wrong atomic.Value
	consume := func(ctx context.Context, tx bun.Tx, steps []step) error {
		for i, s := range steps {
			if err := inOrder(0, &wrong)(ctx, tx, s); err != nil {
				return err
			}
			if s != (step{"a", 2}) || bus.BatchFromContext(ctx)[i].Attempt > 2 {
				continue
			}
			if _, err := tx.NewRaw("INSERT INTO later VALUES (1), (1)").Exec(ctx); err != nil { // which is found out at the commit
				return err
			}
		}
		return nil
	}
	a := testapp.New(t, testdb.Postgres(t), outbox.ConsumeBatchTx("c", consume, inOrderOptions()...))
	a.Exec("CREATE TABLE taken (customer VARCHAR(20), n INTEGER, UNIQUE (customer, n))")
	a.Exec("CREATE TABLE later (id int, UNIQUE (id) DEFERRABLE INITIALLY DEFERRED)")
	testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), a.DB, stepsOf(3, "a", "b")...))
	r := a.Start(alone())
	testapp.Eventually(t, "the other key ran", func() bool { return a.Count("SELECT count(*) FROM taken WHERE customer = 'b'") == 3 })
	testapp.Eventually(t, "all ran", a.Empty)
	r.MustStop()
	if said := wrong.Load(); said != nil {
		t.Error(said)
	}
	if n := a.Count("SELECT count(*) FROM taken"); n != 6 || len(a.Poisoned()) > 0 {
		t.Errorf("got %d effects and %d poisoned, want 6 and none", n, len(a.Poisoned()))
	}
}
