package ops_test

import (
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
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

// TestALargePlanCoversTheFirstMessages: where it matters which those are, no more are changed than are kept.
// Promise: plan
func TestALargePlanCoversTheFirstMessages(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		a.ProduceMany(10_020)
		d := serviceOf(t, db, a.Registry)
		s := operator.As(d, someone(ops.Administrator))
		runner(t, d)
		for _, test := range []struct {
			filter  admin.Filter
			first   bool
			changes int
		}{
			{admin.Filter{Consumer: "c", State: admin.Ready}, true, 10_000},
			{admin.Filter{Consumer: "c"}, false, 10_020},
		} {
			o := planned(t, s, ops.RunNow, ops.Target{Pending: &test.filter})
			_ = testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Rate: 100_000, Reason: "why"}))
			after := awaitState(t, s, o.ID, ops.Done)
			if p := after.Preview; p.Messages != 10_000 || !p.More || p.First != test.first || int(after.Changed) != test.changes {
				t.Errorf("%+v: got %+v and %d changed, want %d", test.filter, p, after.Changed, test.changes)
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
		for _, o := range all {
			_ = testapp.Must[ops.Operation](t)(narrow.Operations().Start(t.Context(), o.ID, ops.StartOptions{Reason: "why"}))
			if after := awaitState(t, narrow, o.ID, ops.Done); o.Preview.Messages != 4 || after.Changed != 4 {
				t.Errorf("%s: %d planned, %d changed, want 4", o.Action, o.Preview.Messages, after.Changed)
			}
		}
		for _, table := range []string{"consumer_messages", "poisoned_messages"} {
			if left, theirs := a.Count("SELECT count(*) FROM "+table), a.Count("SELECT count(*) FROM "+table+" WHERE consumer_type = ?",
				others); left != 4 || theirs != 4 {
				t.Errorf("%s: got %d left, %d of them of %s, want its 4", table, left, theirs, others)
			}
		}
	})
}
