package ops_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// TestATimeThatJSONCannotExpressIsRefused by plans, previews and changes by id, before it is written to the audit.
func TestATimeThatJSONCannotExpressIsRefused(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 3, testapp.Consumed("c"))
		a.ProduceMany(3)
		s := operator.As(serviceOf(t, db, a.Registry), someone(ops.Administrator))
		never := time.Date(10_001, 1, 1, 0, 0, 0, 0, time.UTC)
		for action, target := range map[ops.Action]ops.Target{
			ops.Reschedule: {Pending: &admin.Filter{Consumer: "c"}, At: never},
			ops.Discard:    {Poisoned: &poison.Filter{Consumer: "c", PoisonedAfter: time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC)}},
		} {
			if _, err := s.Operations().Plan(t.Context(), action, target); !errors.Is(err, bus.ErrInvalidOption) {
				t.Errorf("plan %s: got error %v, want bus.ErrInvalidOption", action, err)
			}
			if _, err := s.Operations().Preview(t.Context(), action, target); !errors.Is(err, bus.ErrInvalidOption) {
				t.Errorf("preview %s: got error %v, want bus.ErrInvalidOption", action, err)
			}
		}
		_, err := s.Messages().Reschedule(t.Context(), "why", never, int64(a.Count("SELECT MAX(id) FROM consumer_messages")))
		if !errors.Is(err, bus.ErrInvalidOption) {
			t.Errorf("by id: got error %v, want bus.ErrInvalidOption", err)
		}
		if n := a.Count("SELECT count(*) FROM message_operations"); n != 0 {
			t.Errorf("got %d operations, want none", n)
		}
	})
}

// TestATargetThatDoesNotFitPausesItsOperation: a newer version or a person may have written it. Nothing is changed, and the process lives.
// Promise: fatal-operation
func TestATargetThatDoesNotFitPausesItsOperation(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 3, testapp.Consumed("c"))
		a.ProduceMany(3)
		d := serviceOf(t, db, a.Registry, func(c *ops.Config) { c.UndoWindow = -1 })
		s := operator.As(d, someone(ops.Administrator))
		for _, test := range []struct {
			action ops.Action
			target string
		}{
			{ops.Cancel, `{"ids":[1,2]}`}, {ops.Requeue, `{"ids":[1,2]}`}, {ops.Cancel, `{}`}, {ops.RunNow, `null`},
			{ops.Discard, `{"pending":{}}`}, {ops.Reschedule, `{"pending":{"consumer":"c"}}`},
		} {
			of := ops.Target{Pending: &admin.Filter{Consumer: "c"}, At: time.Now().Add(time.Hour)}
			if test.action == ops.Requeue || test.action == ops.Discard {
				of = ops.Target{Poisoned: &poison.Filter{Consumer: "c"}}
			}
			o := planned(t, s, test.action, of)
			a.Exec("UPDATE message_operations SET target = ? WHERE id = ?", test.target, o.ID)
			testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Reason: "why"}))
			stop := runner(t, d)
			if o = awaitState(t, s, o.ID, ops.Paused); o.Note == "" || o.Changed != 0 {
				t.Errorf("%s of %s: got %+v, want a reason and nothing changed", test.action, test.target, o)
			}
			stop()
			testapp.Must[ops.Operation](t)(s.Operations().Stop(t.Context(), "over", o.ID))
		}
		if n := len(a.Pending()) + len(a.Poisoned()); n != 6 {
			t.Errorf("got %d messages left, want all 6", n)
		}
	})
}

// mute is an error whose methods panic if it is a nil pointer.
type mute struct{ cause error }

func (d *mute) Error() string { return d.cause.Error() }
func (d *mute) Unwrap() error { return d.cause }

// TestAResetWithAnErrorThatPanicsPausesItsOperation.
func TestAResetWithAnErrorThatPanicsPausesItsOperation(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		service, readers, err := balances(db, func(context.Context, bun.Tx) error { return (*mute)(nil) })
		if err == nil {
			err = errors.Join(outbox.Migrate(t.Context(), db, bus.Tables{}), readers.Check(t.Context()))
		}
		if err != nil {
			t.Fatal(err)
		}
		s := operator.As(service, someone(ops.Administrator))
		o := planned(t, s, ops.Rebuild, ops.Target{Projection: "balances"})
		testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Reason: "columns were added"}))
		r := testapp.Must[*ops.Runner](t)(ops.NewRunner(service, readers))
		ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		awaitState(t, s, o.ID, ops.Paused)
		stop()
		<-ended
	})
}
