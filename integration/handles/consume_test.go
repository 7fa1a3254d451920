package handles_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestConsumersWriteInATransactionOfDatabaseSQL has every third run fail after its write.
func TestConsumersWriteInATransactionOfDatabaseSQL(t *testing.T) {
	t.Parallel()
	const messages = 30
	var runs atomic.Int64
	effect := func(ctx context.Context, tx *sql.Tx, o order) error {
		if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO handles_effects (id) VALUES ('%s')", o.ID)); err != nil {
			return err
		}
		if runs.Add(1)%3 == 0 {
			return errors.New("after the write")
		}
		return nil
	}
	for name, consumer := range map[string]func() bus.Consumer{
		"alone": func() bus.Consumer { return outbox.ConsumeTx("c", effect, bus.MaxAttempts(100)) },
		"group": func() bus.Consumer {
			return outbox.ConsumeTx("c", effect, bus.MaxAttempts(100), outbox.GroupCommit(10))
		},
		"batch": func() bus.Consumer {
			return outbox.ConsumeBatchTx("c", func(ctx context.Context, tx *sql.Tx, orders []order) error {
				for _, o := range orders {
					if err := effect(ctx, tx, o); err != nil {
						return err
					}
				}
				return nil
			}, bus.MaxAttempts(100), bus.BatchSize(7))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				withEffects(t, db)
				a := testapp.New(t, db, consumer())
				a.ProduceMany(messages)
				a.Start(testapp.Fast())
				testapp.Eventually(t, "all messages are consumed", func() bool { return counts(t, db)[1] == 0 })
				var distinct int
				must(0, db.NewRaw("SELECT count(DISTINCT id) FROM handles_effects").Scan(t.Context(), &distinct))(t)
				if got := counts(t, db)[0]; got != messages || distinct != messages {
					t.Errorf("got %d rows, %d of them distinct, want %d", got, distinct, messages)
				}
			})
		})
	}
}

// TestAConsumerProducesInItsTransactionOfDatabaseSQL produces, and fails once after that.
func TestAConsumerProducesInItsTransactionOfDatabaseSQL(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var a *app
		var failed, followed atomic.Int64
		a = testapp.New(t, db,
			outbox.ConsumeTx("first", func(ctx context.Context, tx *sql.Tx, o order) error {
				if _, err := a.Producer.Produce(ctx, tx, testapp.Refund{ID: o.ID}); err != nil {
					return err
				}
				if _, err := a.Producer.Produce(ctx, a.DB, testapp.Refund{ID: o.ID}); !errors.Is(err, outbox.ErrNotInTx) {
					t.Errorf("produce beside the transaction: got %v, want ErrNotInTx", err)
				}
				if failed.Add(1) == 1 {
					return errors.New("after the produce")
				}
				return nil
			}),
			bus.Consume("second", func(context.Context, testapp.Refund) error { followed.Add(1); return nil }),
		)
		a.Produce(order{ID: "a"})
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "the follow-up ran", func() bool { return followed.Load() > 0 })
		r.MustStop()
		if got := followed.Load(); got != 1 {
			t.Errorf("got %d runs of the follow-up, want 1", got)
		}
	})
}

// TestAConsumerThatEndsItsTransactionIsNamed expects an error that blames the consumer, not the database, and no second attempt:
// it would write again what the consumer has committed.
func TestAConsumerThatEndsItsTransactionIsNamed(t *testing.T) {
	t.Parallel()
	const want = "outbox: the consumer committed or rolled back its transaction: only the library may end it"
	commits := func(runs *atomic.Int64) func(context.Context, *sql.Tx, order) error {
		return func(_ context.Context, tx *sql.Tx, _ order) error { runs.Add(1); return tx.Commit() }
	}
	for name, c := range map[string]struct {
		consumer func(runs *atomic.Int64) bus.Consumer
		most     int64 // runs of three messages
	}{
		"commits": {func(runs *atomic.Int64) bus.Consumer { return outbox.ConsumeTx("c", commits(runs)) }, 3},
		"rolls back": {func(runs *atomic.Int64) bus.Consumer {
			return outbox.ConsumeTx("c", func(_ context.Context, tx bun.Tx, _ order) error { runs.Add(1); return tx.Rollback() })
		}, 3},
		"in a batch": {func(runs *atomic.Int64) bus.Consumer {
			return outbox.ConsumeBatchTx("c", func(_ context.Context, tx bun.Tx, orders []order) error {
				runs.Add(int64(len(orders)))
				return tx.Commit()
			}, bus.BatchSize(10))
		}, 3},
		// Each runs again on its own: its neighbours may have done it.
		"in a group": {func(runs *atomic.Int64) bus.Consumer {
			return outbox.ConsumeTx("c", commits(runs), outbox.GroupCommit(10))
		}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				var runs atomic.Int64
				a := testapp.New(t, db, c.consumer(&runs))
				a.ProduceMany(3)
				a.Start(testapp.Fast())
				testapp.Eventually(t, "all are poisoned", func() bool { return len(a.Poisoned()) == 3 })
				if got := runs.Load(); got > c.most {
					t.Errorf("runs: got %d, want at most %d", got, c.most)
				}
				for _, m := range a.Poisoned() {
					if !strings.Contains(m.Errors, want) || m.Attempts != 1 {
						t.Errorf("got %d attempts with %s, want one with %q", m.Attempts, m.Errors, want)
					}
				}
			})
		})
	}
}

// TestAConsumerThatAlwaysLeavesRowsOpen is at fault, and not the database, which would cost no attempt.
func TestAConsumerThatAlwaysLeavesRowsOpen(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]bus.ConsumerOption{"alone": nil, "group": {outbox.GroupCommit(5)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := testapp.New(t, testdb.Postgres(t), outbox.ConsumeTx("c", func(ctx context.Context, tx *sql.Tx, _ order) error {
				rows, err := tx.QueryContext(context.WithoutCancel(ctx), "SELECT 1 UNION ALL SELECT 2") // its end would close them
				if err == nil {
					rows.Next()
				}
				return err
			}, append(options, bus.MaxAttempts(2))...))
			a.ProduceMany(3)
			a.Start(testapp.Fast())
			testapp.Eventually(t, "they are poisoned", func() bool { return len(a.Poisoned()) == 3 })
			var failures []string
			must(0, a.DB.NewRaw("SELECT errors FROM poisoned_messages").Scan(t.Context(), &failures))(t)
			if got, want := failures[0], "left rows of its transaction open"; !strings.Contains(got, want) {
				t.Errorf("got %s, want an error with %q", got, want)
			}
		})
	}
}
