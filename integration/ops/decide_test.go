package ops_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// TestDecisionsAreInTheAudit: who undoes, stops, continues or paces an operation is known, with why; what the
// audit refuses is not decided.
// Promise: audit
func TestDecisionsAreInTheAudit(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 4, testapp.Consumed("c"))
		refuse := errors.New("not on Fridays")
		var refusing bool
		var told []ops.Change
		d := serviceOf(t, db, a.Registry, func(c *ops.Config) {
			c.UndoWindow = time.Hour
			c.Audit = func(_ context.Context, c ops.Change) error {
				if refusing {
					return refuse
				}
				told = append(told, c)
				return nil
			}
		})
		s, ctx := operator.As(d, someone(ops.Administrator)), t.Context()
		bob := operator.As(d, ops.Principal{Name: "bob", Role: ops.Administrator})
		start := func(action ops.Action) ops.Operation {
			t.Helper()
			return testapp.Must[ops.Operation](t)(s.Operations().Start(ctx, planned(t, s, action, ofConsumer("c")).ID,
				ops.StartOptions{Reason: "why"}))
		}
		o, other := start(ops.Discard), start(ops.Requeue)
		decide := map[string]func() error{
			"set_operation_rate": func() error { return testapp.Second(bob.Operations().SetRate(ctx, "slower", o.ID, 7)) },
			"stop_operation":     func() error { return testapp.Second(bob.Operations().Stop(ctx, "enough", o.ID)) },
			"undo_operation":     func() error { return testapp.Second(bob.Operations().Undo(ctx, "a mistake", other.ID)) },
			"resume_operation": func() error {
				a.Exec("UPDATE message_operations SET state = 'paused' WHERE id = ?", o.ID)
				return testapp.Second(bob.Operations().Resume(ctx, "it is mended", o.ID, 0))
			},
		}
		order := []string{"set_operation_rate", "resume_operation", "stop_operation", "undo_operation"}
		for _, what := range order {
			before := operationOf(t, s, o.ID)
			refusing = true
			if err := decide[what](); !errors.Is(err, refuse) {
				t.Errorf("%s: got error %v, want the audit's", what, err)
			}
			after := operationOf(t, s, o.ID)
			if n := a.Count("SELECT count(*) FROM message_operations WHERE kind = ?", what); n != 0 || what != "resume_operation" &&
				(after.State != before.State || after.Rate != before.Rate) {
				t.Errorf("%s: got %+v and %d in the audit, want what was", what, after, n)
			}
			refusing = false
			told = nil
			if err := decide[what](); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if len(told) != 1 || string(told[0].Action) != what || told[0].Actor != "bob" || told[0].Reason == "" || told[0].Target.Operation == 0 {
				t.Errorf("%s: the audit was told %+v", what, told)
			}
		}
		log, _, err := s.Operations().List(ctx, admin.Page{Size: 4})
		if err != nil {
			t.Fatal(err)
		}
		slices.Reverse(log)
		for i, want := range []string{"set operation rate by bob of 1: slower (done) 7",
			"resume operation by bob of 1: it is mended (done) 0", "stop operation by bob of 1: enough (done) 0",
			"undo operation by bob of 2: a mistake (done) 0"} {
			l := log[i]
			if got := fmt.Sprintf("%s by %s of %d: %s (%s) %d", l.Action, l.Actor, l.Target.Operation, l.Reason, l.State,
				l.Rate); got != strings.NewReplacer("of 1:", fmt.Sprintf("of %d:", o.ID), "of 2:", fmt.Sprintf("of %d:",
				other.ID)).Replace(want) || l.FinishedAt.IsZero() {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	})
}

// TestPlansExpire: an old plan cannot be started, and is forgotten in time; one of the same by somebody else is told of.
func TestPlansExpire(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 3, testapp.Consumed("c"))
		d := serviceOf(t, db, a.Registry, func(c *ops.Config) { c.UndoWindow = time.Hour })
		ada, ctx := operator.As(d, someone(ops.Administrator)), t.Context()
		bob := operator.As(d, ops.Principal{Name: "bob", Role: ops.Administrator})
		first := planned(t, ada, ops.Discard, ofConsumer("c"))
		if again := planned(t, ada, ops.Discard, ofConsumer("c")); first.Preview.Duplicate != 0 || again.Preview.Duplicate != 0 {
			t.Errorf("planned by one: got already %d and %d, want none", first.Preview.Duplicate, again.Preview.Duplicate)
		}
		if second := planned(t, bob, ops.Discard, ofConsumer("c")); second.Preview.Duplicate != first.ID {
			t.Errorf("planned by another: got already %d, want %d", second.Preview.Duplicate, first.ID)
		}
		if other := planned(t, bob, ops.Requeue, ofConsumer("c")); other.Preview.Duplicate != 0 {
			t.Errorf("another action: got already %d, want none", other.Preview.Duplicate)
		}
		a.Exec("UPDATE message_operations SET created_at = " + testapp.In(db, -11*time.Minute))
		if later := planned(t, bob, ops.Discard, ofConsumer("c")); later.Preview.Duplicate != 0 {
			t.Errorf("a plan that has expired: got already %d, want none", later.Preview.Duplicate)
		}
		fresh := planned(t, ada, ops.Discard, ofConsumer("c"))
		started := testapp.Must[ops.Operation](t)(ada.Operations().Start(ctx, fresh.ID, ops.StartOptions{Reason: "why"}))
		if same, err := ada.Operations().Start(ctx, fresh.ID, ops.StartOptions{Reason: "why"}); !errors.Is(err, ops.ErrInProgress) ||
			same.ID != started.ID || same.State != ops.Waiting {
			t.Errorf("started twice: got %+v and error %v, want the same and ErrInProgress", same, err)
		}
		if p := testapp.Must[ops.Preview](t)(bob.Operations().Preview(ctx, ops.Discard, ofConsumer("c"))); p.Duplicate != started.ID ||
			p.At.IsZero() {
			t.Errorf("while it is under way: got %+v, want already %d", p, started.ID)
		}
		other := testapp.Must[ops.Preview](t)(bob.Operations().Preview(ctx, ops.Requeue, ofConsumer("c")))
		if other.Duplicate != 0 || !slices.Equal(other.Overlapping, []int64{started.ID}) {
			t.Errorf("another action: got already %d and overlapping %v, want none and %d", other.Duplicate, other.Overlapping, started.ID)
		}
		a.Exec("UPDATE message_operations SET created_at = " + testapp.In(db, -61*time.Minute))
		_ = planned(t, ada, ops.Requeue, ofConsumer("c"))
		if n := a.Count("SELECT count(*) FROM message_operations"); n != 2 {
			t.Errorf("got %d operations, want the one that was started, and the last plan", n)
		}
	})
}

// TestAllowIsAskedOfEach: who may not touch a consumer does not by naming messages, or nobody.
func TestAllowIsAskedOfEach(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 4, testapp.Consumed("c"), testapp.Consumed("d")) // of each
		a.ProduceMany(1)
		d := serviceOf(t, db, a.Registry, func(c *ops.Config) { c.UndoWindow = time.Hour })
		all, ctx := operator.As(d, someone(ops.Administrator)), t.Context()
		narrow := operator.As(d, ops.Principal{Name: "ada", Role: ops.Administrator,
			Allow: func(a ops.Action, consumer string) bool { return consumer != "d" || a == ops.View }})
		ids := func(table, consumer string) (found []int64) {
			t.Helper()
			testapp.OK(t, db.NewRaw("SELECT id FROM "+table+" WHERE consumer_type = ? ORDER BY id", consumer).Scan(ctx, &found))
			return found
		}
		only := func(consumer string) func(operator.PoisonedMessage) error {
			return func(m operator.PoisonedMessage) error {
				if m.Consumer != consumer {
					t.Errorf("export: got %+v, want those of %s only", m, consumer)
				}
				return nil
			}
		}
		everything := ops.Target{Poisoned: &poison.Filter{}}
		o := planned(t, all, ops.Discard, everything)
		_ = testapp.Must[ops.Operation](t)(all.Operations().Start(ctx, o.ID, ops.StartOptions{Reason: "why"}))
		poisoned, pending := append(ids("poisoned_messages", "c")[:1],
			ids("poisoned_messages", "d")[0]), append(ids("consumer_messages", "c"), ids("consumer_messages", "d")...)
		for what, err := range map[string]error{
			"requeue":     testapp.Second(narrow.Poisoned().Requeue(ctx, "", poisoned...)),
			"discard":     testapp.Second(narrow.Poisoned().Discard(ctx, "", poisoned...)),
			"edit":        narrow.Poisoned().EditAndRequeue(ctx, "", poisoned[1], []byte("{}")),
			"cancel":      testapp.Second(narrow.Messages().Cancel(ctx, "", pending...)),
			"run now":     testapp.Second(narrow.Messages().RunNow(ctx, "", pending...)),
			"reschedule":  testapp.Second(narrow.Messages().Reschedule(ctx, "", time.Now(), pending...)),
			"plan":        testapp.Second(narrow.Operations().Plan(ctx, ops.Requeue, everything)),
			"plan of d":   testapp.Second(narrow.Operations().Plan(ctx, ops.Requeue, ofConsumer("d"))),
			"plan cancel": testapp.Second(narrow.Operations().Plan(ctx, ops.Cancel, ops.Target{Pending: &admin.Filter{}})),
			"plan of ids": testapp.Second(narrow.Operations().Plan(ctx, ops.Requeue, ops.Target{Poisoned: &poison.Filter{IDs: poisoned}})),
			"export":      testapp.Second(narrow.Poisoned().Export(ctx, "", poison.Filter{}, only("c"))),
			"undo":        testapp.Second(narrow.Operations().Undo(ctx, "", o.ID)),
			"stop":        testapp.Second(narrow.Operations().Stop(ctx, "", o.ID)),
			"set rate":    testapp.Second(narrow.Operations().SetRate(ctx, "", o.ID, 5)),
		} {
			if !errors.Is(err, ops.ErrForbidden) {
				t.Errorf("%s: got error %v, want ErrForbidden", what, err)
			}
		}
		for what, err := range map[string]error{
			"requeue of c": testapp.Second(narrow.Poisoned().Requeue(ctx, "", poisoned[0])),
			"plan of c":    testapp.Second(narrow.Operations().Plan(ctx, ops.Requeue, ofConsumer("c"))),
			"plan of ids": testapp.Second(narrow.Operations().Plan(ctx, ops.Requeue,
				ops.Target{Poisoned: &poison.Filter{IDs: ids("poisoned_messages", "c")}})),
			"run c":       testapp.Second(narrow.Messages().RunNow(ctx, "", ids("consumer_messages", "c")...)),
			"export of c": testapp.Second(narrow.Poisoned().Export(ctx, "", poison.Filter{Consumer: "c"}, only("c"))),
			"undo by all": testapp.Second(all.Operations().Undo(ctx, "", o.ID)),
		} {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// TestPreviewsHaveTheirOwnRoom: who looks is not held up by who previews; a plan that would take too long is not made, as it
// would change messages that no preview listed.
func TestPreviewsHaveTheirOwnRoom(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 3, testapp.Consumed("c"), testapp.Consumed("d"))
		counting := make(chan struct{}, 8)
		hooked := db.WithQueryHook(testapp.QueryHook(func(ctx context.Context, query string) {
			if strings.Contains(query, " AS conflict") {
				counting <- struct{}{}
				<-ctx.Done()
			}
		}))
		s := operator.As(serviceOf(t, hooked, a.Registry), someone(ops.Administrator))
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				o, err := s.Operations().Plan(t.Context(), ops.Discard, ops.Target{Poisoned: &poison.Filter{}})
				if !errors.Is(err, ops.ErrBusy) {
					t.Errorf("got %+v, error %v, want ErrBusy", o, err)
				}
			})
		}
		<-counting
		<-counting
		for range 4 {
			if _, _, err := s.Poisoned().Groups(t.Context(), ""); err != nil {
				t.Errorf("who looks meanwhile: got error %v", err)
			}
		}
		all.Wait()
	})
}

// TestAFormerNameIsNoWayAroundAllow: what is forbidden of a consumer is forbidden under its former names, too.
// Promise: plan
func TestAFormerNameIsNoWayAroundAllow(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 4, testapp.Consumed("payments", bus.Aliases("billing")))
		d := serviceOf(t, db, a.Registry)
		allow := func(_ ops.Action, consumer string) bool { return consumer != "payments" }
		s := operator.As(d, ops.Principal{Name: "eve", Role: ops.Administrator, Allow: allow})
		if err := s.Consumers().Pause(t.Context(), "payments", "x"); !errors.Is(err, ops.ErrForbidden) {
			t.Fatalf("pause payments: got %v", err)
		}
		if err := s.Consumers().Pause(t.Context(), "billing", "x"); !errors.Is(err, ops.ErrForbidden) {
			t.Errorf("pause billing: got %v, want it forbidden", err)
		}
		a.Exec("UPDATE poisoned_messages SET consumer_type = 'billing'")
		for _, filter := range []poison.Filter{{Consumer: "billing"}, {}} {
			if _, err := s.Operations().Plan(t.Context(), ops.Requeue, ops.Target{Poisoned: &filter}); !errors.Is(err, ops.ErrForbidden) {
				t.Errorf("requeue %+v: got error %v, want it forbidden", filter, err)
			}
		}
		id := int64(a.Count("SELECT MIN(id) FROM poisoned_messages"))
		if _, err := s.Poisoned().Requeue(t.Context(), "x", id); !errors.Is(err, ops.ErrForbidden) {
			t.Errorf("requeue by id: got error %v, want it forbidden", err)
		}
	})
}

// TestARepeatIsAllOrNone, also for a principal that is asked about each message.
func TestARepeatIsAllOrNone(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c", bus.Keep(time.Hour), bus.KeepPayload()))
		a.Produce(order{ID: "1"})
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "it is kept", func() bool { return a.Count("SELECT count(*) FROM consumed_messages") == 1 })
		r.MustStop()
		for _, allow := range []func(ops.Action, string) bool{nil, func(ops.Action, string) bool { return true }} {
			s := operator.As(serviceOf(t, db, a.Registry), ops.Principal{Name: "ada", Role: ops.Administrator, Allow: allow})
			id := int64(a.Count("SELECT id FROM consumed_messages"))
			if got, err := s.Consumed().Repeat(t.Context(), "why", id, id+1000); !errors.Is(err, admin.ErrNotFound) || len(a.Pending()) > 0 {
				t.Errorf("Allow %t: got %v, %v and %d messages, want admin.ErrNotFound and none", allow != nil, got, err, len(a.Pending()))
			}
		}
	})
}
