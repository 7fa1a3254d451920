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

// TestAPlanChangesOnlyWhatItListed: of pending messages, which become due, fail and crash by themselves, and of producers that
// commit late, an operation changes those that matched when it was planned, and no others.
// Promise: plan
func TestAPlanChangesOnlyWhatItListed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		d := serviceOf(t, db, a.Registry)
		s := operator.As(d, someone(ops.Administrator))
		runner(t, d)
		for what, test := range map[string]struct {
			filter           admin.Filter
			matches, differs string // what has the first message match, and the others not
		}{
			"ready": {admin.Filter{State: admin.Ready}, "available_after = " + testapp.In(db, -time.Hour),
				"available_after = " + testapp.In(db, time.Hour)},
			"delayed": {admin.Filter{State: admin.Delayed}, "available_after = " + testapp.In(db, time.Hour),
				"available_after = " + testapp.In(db, -time.Hour)},
			"retrying": {admin.Filter{Retrying: true}, "attempts = 1", "attempts = 0"},
			"crashed":  {admin.Filter{Crashed: true}, "crashes = 1", "crashes = 0"},
		} {
			a.Exec("DELETE FROM consumer_messages")
			a.ProduceMany(6)
			first := a.Count("SELECT MIN(id) FROM consumer_messages")
			a.Exec("UPDATE consumer_messages SET "+test.matches+" WHERE id = ?", first)
			a.Exec("UPDATE consumer_messages SET "+test.differs+" WHERE id > ?", first)
			o := planned(t, s, ops.Cancel, ops.Target{Pending: &test.filter})
			a.Exec("UPDATE consumer_messages SET "+test.differs+" WHERE id = ?", first) // it changes nothing that it does not match any more
			a.Exec("UPDATE consumer_messages SET "+test.matches+" WHERE id > ?", first)
			_ = testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Reason: "the first is wrong"}))
			if after := awaitState(t, s, o.ID, ops.Done); o.Preview.Messages != 1 || after.Changed != 1 || len(a.Pending()) != 5 ||
				a.Count("SELECT count(*) FROM consumer_messages WHERE id = ?", first) != 0 {
				t.Errorf("%s: %d planned, %d changed, %d left, want 1, 1 and 5", what, o.Preview.Messages, after.Changed, len(a.Pending()))
			}
		}
		a.Exec("DELETE FROM consumer_messages")
		a.ProduceMany(3)
		late := a.Count("SELECT MIN(id) FROM consumer_messages")
		a.Exec("UPDATE consumer_messages SET consumer_type = 'unseen' WHERE id = ?", late)
		o := planned(t, s, ops.Cancel, ops.Target{Pending: &admin.Filter{Consumer: "c"}})
		a.Exec("UPDATE consumer_messages SET consumer_type = 'c' WHERE id = ?", late)
		_ = testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Reason: "why"}))
		if after := awaitState(t, s, o.ID, ops.Done); o.Preview.Messages != 2 || after.Changed != 2 || len(a.Pending()) != 1 {
			t.Errorf("a producer that commits late: %d planned, %d changed, %d left, want 2, 2 and 1", o.Preview.Messages, after.Changed,
				len(a.Pending()))
		}
	})
}

// TestAPlanOfPoisonedMessagesChangesWhatItHasSeen: a message is poisoned while the plan is made, and committed afterwards. Its time
// and its id are those of a message that was seen, but the operation does not change it.
// Promise: plan
func TestAPlanOfPoisonedMessagesChangesWhatItHasSeen(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		for _, action := range []ops.Action{ops.Discard, ops.Requeue} {
			a, _ := testapp.NewPoisoned(t, db, 3, testapp.Consumed("c"))
			d := serviceOf(t, db, a.Registry)
			s := operator.As(d, someone(ops.Administrator))
			stop := runner(t, d)
			late := a.Count("SELECT MIN(id) FROM poisoned_messages")
			a.Exec("UPDATE poisoned_messages SET consumer_type = 'unseen' WHERE id = ?", late)
			o := planned(t, s, action, ofConsumer("c"))
			a.Exec("UPDATE poisoned_messages SET consumer_type = 'c' WHERE id = ?", late)
			_ = testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Reason: "why", Canary: -1}))
			if after := awaitState(t, s, o.ID, ops.Done); o.Preview.Messages != 2 || after.Changed != 2 || len(a.Poisoned()) != 1 {
				t.Errorf("%s: %d planned, %d changed, %d left, want 2, 2 and 1", action, o.Preview.Messages, after.Changed, len(a.Poisoned()))
			}
			stop()
			a.Exec("DELETE FROM poisoned_messages")
		}
	})
}

// TestALargePlanChangesOnlyWhatItListed: messages with lower ids that come to match later, such as those of a transaction that commits
// late, are not changed, however many others match. Those that are gone are no reason to change more.
// Promise: plan
func TestALargePlanChangesOnlyWhatItListed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 10_020, testapp.Consumed("c"))
		a.ProduceMany(10_020)
		d := serviceOf(t, db, a.Registry)
		s := operator.As(d, someone(ops.Administrator))
		runner(t, d)
		placed := order{}.PayloadType()
		for table, test := range map[string]struct {
			action ops.Action
			target ops.Target
		}{
			"consumer_messages": {ops.Cancel, ops.Target{Pending: &admin.Filter{Consumer: "c", PayloadType: placed}}},
			"poisoned_messages": {ops.Discard, ops.Target{Poisoned: &poison.Filter{Consumer: "c", PayloadType: placed}}},
		} {
			first, last := a.Count("SELECT MIN(id) FROM "+table), a.Count("SELECT MAX(id) FROM "+table)
			a.Exec("UPDATE "+table+" SET payload_type = 'unseen' WHERE id < ?", first+5)
			o := planned(t, s, test.action, test.target)
			a.Exec("UPDATE "+table+" SET payload_type = ? WHERE id < ?", placed, first+5)
			a.Exec("DELETE FROM "+table+" WHERE id = ?", last)
			_ = testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Rate: 100_000, Reason: "why"}))
			after := awaitState(t, s, o.ID, ops.Done)
			if p := o.Preview; p.Messages != 10_015 || p.More || p.First || int(p.UpTo) != last || after.Changed != 10_014 ||
				a.Count("SELECT count(*) FROM "+table+" WHERE id < ?", first+5) != 5 {
				t.Errorf("%s: %d up to %d planned, more %t, %d changed, %d left, want 10,015 up to %d, and all but one of them changed",
					test.action, p.Messages, p.UpTo, p.More, after.Changed, a.Count("SELECT count(*) FROM "+table), last)
			}
		}
	})
}

// TestThePreviewOfAHugePlan has the first 100,000 messages, and says that more match.
// Promise: plan
func TestThePreviewOfAHugePlan(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 10_010, testapp.Consumed("c"))
		for i := range 9 {
			a.Exec(`INSERT INTO poisoned_messages (id, message_id, consumer_type, payload_type, payload, created_at, available_after, attempts, crashes,
	poisoned_at, reason) SELECT id + ?, message_id, consumer_type, payload_type, payload, created_at, available_after, attempts, crashes,
	poisoned_at, reason FROM poisoned_messages WHERE id <= 10010`, (i+1)*10_010)
		}
		s := operator.As(serviceOf(t, db, a.Registry), someone(ops.Administrator))
		for _, more := range []bool{true, false} {
			if !more {
				a.Exec("DELETE FROM poisoned_messages WHERE id > 100000")
			}
			began := time.Now()
			p := testapp.Must[ops.Preview](t)(s.Operations().Preview(t.Context(), ops.Requeue, ofConsumer("c")))
			if time.Since(began) > 2*time.Second && p.More && p.First && p.Messages%10_000 == 0 && p.Messages >= 10_000 {
				t.Logf("a slow machine: %d in the time that a preview has", p.Messages)
				continue
			}
			if p.Messages != 100_000 || p.More != more || p.First != more || p.UpTo != 100_000 || p.Poisoned.Messages != 10_000 {
				t.Errorf("got %d up to %d, more %t, first %t, want 100,000 and %t", p.Messages, p.UpTo, p.More, p.First, more)
			}
		}
	})
}

// TestAnOperationLeavesConsumersOutsideAllowAlone: it changes nothing of consumers that Allow was not asked for when it was started.
// Promise: plan
func TestAnOperationLeavesConsumersOutsideAllowAlone(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 4, testapp.Consumed("c"), testapp.Consumed("d"))
		a.ProduceMany(4)
		d := serviceOf(t, db, a.Registry)
		others := "d" // what they may is the rest, which has the last id, up to which the plan goes
		if a.Count("SELECT MAX(id) FROM poisoned_messages WHERE consumer_type = 'd'") == 8 {
			others = "c"
		}
		narrow := operator.As(d, ops.Principal{Name: "eve", Role: ops.Administrator,
			Allow: func(_ ops.Action, consumer string) bool { return consumer != others }})
		runner(t, d)
		a.Exec("UPDATE consumer_messages SET available_after = "+testapp.In(db, time.Hour)+" WHERE consumer_type = ?", others)
		a.Exec("UPDATE poisoned_messages SET payload_type = 'other' WHERE consumer_type = ?", others)
		var all []ops.Operation
		for action, target := range map[ops.Action]ops.Target{
			ops.Cancel:  {Pending: &admin.Filter{State: admin.Ready}},
			ops.Discard: {Poisoned: &poison.Filter{PayloadType: order{}.PayloadType()}},
		} {
			all = append(all, planned(t, narrow, action, target))
		}
		a.Exec("UPDATE consumer_messages SET available_after = " + testapp.In(db, -time.Hour)) // those of the others come to match
		a.Exec("UPDATE poisoned_messages SET payload_type = ?", order{}.PayloadType())
		for _, table := range []string{"consumer_messages", "poisoned_messages"} { // one of each plan comes to be of the others
			id := a.Count("SELECT MIN(id) FROM "+table+" WHERE consumer_type <> ?", others)
			a.Exec("UPDATE "+table+" SET consumer_type = ? WHERE id = ?", others, id)
		}
		for _, o := range all {
			_ = testapp.Must[ops.Operation](t)(narrow.Operations().Start(t.Context(), o.ID, ops.StartOptions{Reason: "why"}))
			if after := awaitState(t, narrow, o.ID, ops.Done); o.Preview.Messages != 4 || after.Changed != 3 {
				t.Errorf("%s: %d planned, %d changed, want 4 and 3", o.Action, o.Preview.Messages, after.Changed)
			}
		}
		for _, table := range []string{"consumer_messages", "poisoned_messages"} {
			if left, theirs := a.Count("SELECT count(*) FROM "+table), a.Count("SELECT count(*) FROM "+table+" WHERE consumer_type = ?",
				others); left != 5 || theirs != 5 {
				t.Errorf("%s: got %d left, %d of them of %s, want its 5", table, left, theirs, others)
			}
		}
	})
}

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
			o = awaitState(t, s, o.ID, ops.Paused)
			if o.Note == "" || o.Changed != 0 {
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
