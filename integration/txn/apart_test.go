package txn_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/poisoned"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// TestWritesApartFromTheTransactionAreRefused passes the handle where the
// transaction is meant, which on SQLite would wait for itself.
func TestWritesApartFromTheTransactionAreRefused(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a, store := testapp.NewPoisoned(t, db, 2, testapp.Counting("c", &n))
		s := a.Scheduler()
		id := testapp.Must[int64](t)(s.Create(t.Context(), db, order{}, "@daily", "UTC"))
		err := a.Producer.RunInTx(t.Context(), db, func(ctx context.Context, tx bun.Tx) error {
			for what, err := range map[string]error{
				"schedule":        testapp.Second(s.Create(ctx, db, order{}, "@daily", "UTC")),
				"pause":           s.Pause(ctx, db, id),
				"resume":          s.Resume(ctx, db, id),
				"run now":         s.Trigger(ctx, db, id),
				"update schedule": s.UpdateSchedule(ctx, db, id, "@daily", "UTC"),
				"update payload":  s.UpdatePayload(ctx, db, id, order{}),
				"delete by id":    s.DeleteByID(ctx, db, id),
				"delete by tag":   testapp.Second(s.DeleteByTag(ctx, db, "t")),
				"requeue":         testapp.Second(store.Requeue(ctx, db, 1)),
				"requeue where":   testapp.Second(store.RequeueWhere(ctx, db, poison.Filter{}, 1)),
				"requeue batch":   testapp.Second(store.RequeueChunk(ctx, db, poisoned.Chunk{UpTo: 1, Limit: 1})),
				"discard batch":   func() error { _, _, err := store.DiscardChunk(ctx, db, poisoned.Chunk{UpTo: 1, Limit: 1}); return err }(),
				"edit":            store.EditAndRequeue(ctx, db, 1, order{}),
				"edit text":       store.EditAndRequeueText(ctx, db, 1, []byte("{}")),
				"discard":         testapp.Second(store.Discard(ctx, db, 1)),
				"purge":           testapp.Second(store.Purge(ctx, db, 0)),
			} {
				if !errors.Is(err, txn.ErrNotInTx) {
					t.Errorf("%s: got %v, want ErrNotInTx", what, err)
				}
			}
			if _, err := s.Create(ctx, &tx, order{}, "@daily", "UTC"); err != nil {
				return err
			}
			_, err := store.Requeue(ctx, &tx, 1)
			return err
		})
		written, _, listErr := s.List(t.Context(), db, schedule.Filter{}, admin.Page{})
		if err = errors.Join(err, listErr); err != nil || len(a.Pending()) != 1 || len(written) != 2 {
			t.Errorf("in the transaction: got %v and %d messages, want one of each", err, len(a.Pending()))
		}
	})
}
