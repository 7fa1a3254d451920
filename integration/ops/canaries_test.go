package ops_test

import (
	"errors"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// TestAResumedOperationIsNotUndone: an operation that has changed messages is stopped, also while its next canaries wait.
func TestAResumedOperationIsNotUndone(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 8, testapp.Consumed("c"))
		s, ctx := operator.As(serviceOf(t, db, a.Registry), someone(ops.Administrator)), t.Context()
		o := testapp.Must[ops.Operation](t)(s.Operations().Start(ctx, planned(t, s, ops.Requeue, ofConsumer("c")).ID,
			ops.StartOptions{Reason: "fixed"}))
		a.Exec("UPDATE message_operations SET state = 'paused', changed = 5")
		if o = testapp.Must[ops.Operation](t)(s.Operations().Resume(ctx, "", o.ID, 3)); o.State != ops.Canary || o.Changed != 5 {
			t.Errorf("resumed: got %+v, want canaries", o)
		}
		if o, err := s.Operations().Undo(ctx, "", o.ID); !errors.Is(err, ops.ErrInvalidState) {
			t.Errorf("undone: got %+v and error %v, want ErrInvalidState: 5 are changed", o, err)
		}
		if o = testapp.Must[ops.Operation](t)(s.Operations().Stop(ctx, "", o.ID)); o.State != ops.Stopped || o.Changed != 5 {
			t.Errorf("stopped: got %+v, want that, with 5 changed", o)
		}
	})
}
