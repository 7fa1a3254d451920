package handles_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// TestMessagesChangeInAnyTransaction pauses, reschedules, cancels, requeues and discards, with each end.
func TestMessagesChangeInAnyTransaction(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db *bun.DB, w world) {
		fails := func(context.Context, order) error { return errors.New("no") }
		a := testapp.New(t, db, bus.Consume("one", fails, bus.MaxAttempts(1)))
		client, store := a.Admin(), must(poison.NewStore(a.Registry))(t)
		a.ProduceMany(2)
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "both are poisoned", func() bool { return must(store.Count(t.Context(), db, poison.Filter{}))(t) == 2 })
		r.MustStop()
		a.ProduceMany(2)
		pending, poisoned := a.Pending(), must(first(store.List(t.Context(), db, poison.Filter{}, admin.Page{})))(t)
		for _, commit := range []bool{false, true} {
			tx := w.begin(t, db)
			ctx := t.Context()
			must(0, client.Pause(ctx, tx, "one", admin.PauseNote{}))(t)
			must(0, client.Resume(ctx, tx, "one"))(t)
			must(0, client.Pause(ctx, tx, "one", admin.PauseNote{By: "me"}))(t)
			if db.Dialect().Name() == dialect.MySQL { // a caller's transaction may not see the newest claims
				if _, err := client.Cancel(ctx, tx, pending[0].ID); !errors.Is(err, bus.ErrInvalidOption) {
					t.Errorf("cancel: got %v, want ErrInvalidOption", err)
				}
			} else {
				must(client.Reschedule(ctx, tx, time.Now().Add(time.Hour), pending[0].ID))(t)
				must(client.RunNow(ctx, tx, pending[0].ID))(t)
				must(client.Cancel(ctx, tx, pending[0].ID))(t)
			}
			must(store.Requeue(ctx, tx, poisoned[0].ID))(t)
			must(store.Discard(ctx, tx, poisoned[1].ID))(t)
			if err := client.Probe(ctx, tx, "one"); !errors.Is(err, admin.ErrNotOpen) {
				t.Errorf("probe: got %v, want ErrNotOpen", err)
			}
			end, paused, left, waiting := tx.Rollback, false, 2, 2
			if commit {
				end, paused, left = tx.Commit, true, 0
				if db.Dialect().Name() == dialect.MySQL {
					waiting = 3
				}
			}
			must(0, end())(t)
			queues := must(client.Queues(ctx, db))(t)
			if got := !queues[0].PausedAt.IsZero(); got != paused {
				t.Errorf("committed %t: got paused %t", commit, got)
			}
			if got := must(store.Count(ctx, db, poison.Filter{}))(t); got != left || len(a.Pending()) != waiting {
				t.Errorf("committed %t: got %d poisoned and %d pending, want %d and %d", commit, got, len(a.Pending()), left, waiting)
			}
		}
	})
}

func first[A, B any](a A, _ B, err error) (A, error) { return a, err }
