package ops_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
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

func ofConsumer(name string) ops.Target { return ops.Target{Poisoned: &poison.Filter{Consumer: name}} }

func planned(t *testing.T, s *operator.Session, a ops.Action, target ops.Target) ops.Operation {
	t.Helper()
	return testapp.Must[ops.Operation](t)(s.Operations().Plan(t.Context(), a, target))
}

// TestAnOperation requeues all that was seen, and nothing that came later.
func TestAnOperation(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 30, testapp.Consumed("c"))
		d := serviceOf(t, db, a.Registry)
		s := operator.As(d, someone(ops.Administrator))
		runner(t, d)
		o := planned(t, s, ops.Requeue, ofConsumer("c"))
		if o.State != ops.Planned || o.Preview == nil || o.Preview.Messages != 30 || o.Preview.UpTo != 30 || o.Actor != "ada" {
			t.Fatalf("planned: got %+v with %+v, want 30 messages up to 30", o, o.Preview)
		}
		a.Exec("UPDATE poisoned_messages SET id = 1000, poisoned_at = " + testapp.In(db, time.Minute) + " WHERE id = 7") // which fails later
		started := testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID,
			ops.StartOptions{Rate: 1000, Canary: -1, Reason: "fixed"}))
		if started.State != ops.Waiting || started.Reason != "fixed" || started.Rate != 1000 {
			t.Errorf("started: got %+v", started)
		}
		o = awaitState(t, s, o.ID, ops.Done)
		if o.Changed != 29 || o.FinishedAt.IsZero() || len(a.Pending()) != 29 || len(a.Poisoned()) != 1 {
			t.Errorf("done: got %+v with %d pending and %d poisoned, want 29 requeued and 1 left", o, len(a.Pending()), len(a.Poisoned()))
		}
	})
}

// TestTheSameIsStartedOnce: of several who start an operation with one target one does, and the others are told
// which it is; one with another target is another.
func TestTheSameIsStartedOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 5, testapp.Consumed("c"))
		d := serviceOf(t, db, a.Registry, func(c *ops.Config) { c.UndoWindow = time.Hour })
		var started, told atomic.Int64
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				s := operator.As(d, ops.Principal{Name: fmt.Sprintf("ada %d", i), Role: ops.Administrator})
				o, err := s.Operations().Plan(t.Context(), ops.Requeue, ofConsumer("c"))
				if err != nil {
					t.Errorf("plan: %v", err)
					return
				}
				switch o, err = s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Reason: "fixed"}); {
				case err == nil:
					started.Add(o.ID)
				case errors.Is(err, ops.ErrInProgress):
					told.Store(o.ID)
				default:
					t.Errorf("start: %v", err)
				}
			})
		}
		all.Wait()
		if n := a.Count("SELECT count(*) FROM message_operations WHERE state = 'waiting'"); n != 1 || told.Load() != started.Load() {
			t.Errorf("the same: got %d operations, %d was started, and %d told, want one", n, started.Load(), told.Load())
		}
		s := operator.As(d, someone(ops.Administrator))
		other := planned(t, s, ops.Requeue, ops.Target{Poisoned: &poison.Filter{Consumer: "c", PayloadType: testapp.Order{}.PayloadType()}})
		if _, err := s.Operations().Start(t.Context(), other.ID, ops.StartOptions{Reason: "fixed"}); err != nil {
			t.Errorf("another target: got %v", err)
		}
		testapp.Must[ops.Operation](t)(s.Operations().Undo(t.Context(), "", started.Load()))
		again := planned(t, s, ops.Requeue, ofConsumer("c"))
		if _, err := s.Operations().Start(t.Context(), again.ID, ops.StartOptions{Reason: "fixed"}); err != nil {
			t.Errorf("the same once it was undone: got %v", err)
		}
	})
}

// TestStartsMeet: who starts an operation waits for who starts the same, and sees it, also where that was planned since
// plans of the same were looked for. Others may be locked, such as by their steps. SQLite has one writer at a time.
func TestStartsMeet(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) *bun.DB{"postgres": testdb.Postgres, "mariadb": testdb.MariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, terms := open(t), ops.StartOptions{Reason: "why"}
			a, _ := testapp.NewPoisoned(t, db, 5, testapp.Consumed("c"), testapp.Consumed("d"))
			meanwhile := func() {}
			hooked := watched(db, func(query string) {
				if strings.Contains(query, "FOR UPDATE") {
					meanwhile()
					meanwhile = func() {}
				}
			})
			s := operator.As(serviceOf(t, hooked, a.Registry, func(c *ops.Config) { c.UndoWindow = time.Hour }), someone(ops.Administrator))
			start := func(ctx context.Context, id int64) (ops.Operation, error) {
				ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
				defer cancel()
				return s.Operations().Start(ctx, id, terms)
			}
			plan := func(consumer string) int64 { return planned(t, s, ops.Requeue, ofConsumer(consumer)).ID }

			first, second := plan("c"), plan("c")
			held := testapp.Must[bun.Tx](t)(db.BeginTx(t.Context(), nil))
			defer func() { _ = held.Rollback() }() // it is over, or the test has failed
			testapp.OK(t, testapp.Second(held.NewRaw("UPDATE message_operations SET state = 'waiting' WHERE id = ?", first).Exec(t.Context())))
			var same ops.Operation
			var err error
			done := make(chan struct{})
			go func() {
				defer close(done)
				same, err = start(t.Context(), second)
			}()
			select {
			case <-done:
				t.Errorf("started while the same is: got %+v and %v, want that it waits", same, err)
			case <-time.After(300 * time.Millisecond):
			}
			testapp.OK(t, held.Commit())
			if <-done; !errors.Is(err, ops.ErrInProgress) || same.ID != first {
				t.Errorf("started with the same: got %+v and %v, want operation %d and ErrInProgress", same, err, first)
			}

			first, second = plan("d"), 0
			meanwhile = func() {
				second = plan("d")
				if _, err := start(t.Context(), second); err != nil {
					t.Errorf("planned and started since: %v", err)
				}
			}
			if same, err = start(context.WithValue(t.Context(), marked{}, true), first); !errors.Is(err, ops.ErrInProgress) ||
				same.ID != second || second == 0 {
				t.Errorf("started since: got %+v and %v, want operation %d and ErrInProgress", same, err, second)
			}

			alone := planned(t, s, ops.Discard, ofConsumer("d")).ID
			held = testapp.Must[bun.Tx](t)(db.BeginTx(t.Context(), nil))
			for _, id := range []int64{first, second, planned(t, s, ops.Discard, ofConsumer("c")).ID} {
				testapp.OK(t, testapp.Second(held.NewRaw("SELECT id FROM message_operations WHERE id = ? FOR UPDATE", id).Exec(t.Context())))
			}
			if _, err := start(t.Context(), alone); err != nil {
				t.Errorf("started while others are locked: %v", err)
			}
		})
	}
}

// TestPreview writes nothing.
func TestPreview(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 5, testapp.Consumed("c"))
		s := operator.As(serviceOf(t, db, a.Registry), someone(ops.Administrator))
		p := testapp.Must[ops.Preview](t)(s.Operations().Preview(t.Context(), ops.Discard, ofConsumer("c")))
		if n := a.Count("SELECT count(*) FROM message_operations"); p.Messages != 5 || n != 0 {
			t.Errorf("got %+v and %d operations, want 5 messages and none", p, n)
		}
		if _, err := s.Operations().Preview(t.Context(), ops.Discard, ofConsumer("nobody")); !errors.Is(err, ops.ErrNoMatch) {
			t.Errorf("nothing: got %v", err)
		}
		found := testapp.Must[[]bus.Tables](t)(s.FindInstallations(t.Context()))
		if len(found) != 1 || found[0] != (bus.Tables{}) {
			t.Errorf("installed: got %+v, want the tables without schema and prefix", found)
		}
	})
}

// TestUndo: until an operation starts nothing changes, and what is undone never starts.
func TestUndo(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 5, testapp.Consumed("c"))
		d := serviceOf(t, db, a.Registry, func(c *ops.Config) { c.UndoWindow = 20 * time.Millisecond })
		s := operator.As(d, someone(ops.Administrator))
		runner(t, d)
		undone, done := 0, 0
		for range 30 { // at times right when it starts
			if len(a.Poisoned()) == 0 {
				break
			}
			o := planned(t, s, ops.Discard, ofConsumer("c"))
			before := len(a.Poisoned())
			_ = testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Rate: 1, Reason: "no use"}))
			<-time.After(time.Duration(15+undone) * time.Millisecond)
			switch after, err := s.Operations().Undo(t.Context(), "", o.ID); {
			case err == nil:
				undone++
				if after.State != ops.Undone || after.Changed != 0 || len(a.Poisoned()) != before {
					t.Fatalf("undone: got %+v and %d messages, want %d", after, len(a.Poisoned()), before)
				}
			case errors.Is(err, ops.ErrInvalidState):
				done++
				_, _ = s.Operations().Stop(t.Context(), "", o.ID)
			default:
				t.Fatal(err)
			}
		}
		t.Logf("%d undone, %d too late", undone, done)
		if undone == 0 {
			t.Error("nothing was undone")
		}
	})
}

// TestOnlyTheCreatorStartsAPlan: a plan is started once, by who made it, with a reason, and while it is new.
func TestOnlyTheCreatorStartsAPlan(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 3, testapp.Consumed("c"))
		d := serviceOf(t, db, a.Registry)
		ada, ctx := operator.As(d, someone(ops.Administrator)), t.Context()
		bob := operator.As(d, ops.Principal{Name: "bob", Role: ops.Administrator})
		o := planned(t, ada, ops.Discard, ofConsumer("c"))
		terms := ops.StartOptions{Reason: "why"}
		for what, got := range map[string]struct{ err, want error }{
			"by another": {testapp.Second(bob.Operations().Start(ctx, o.ID, terms)), ops.ErrForbidden},
			"no reason":  {testapp.Second(ada.Operations().Start(ctx, o.ID, ops.StartOptions{})), bus.ErrInvalidOption},
			"rate":       {testapp.Second(ada.Operations().Start(ctx, o.ID, ops.StartOptions{Reason: "why", Rate: -1})), bus.ErrInvalidOption},
			"canary": {testapp.Second(ada.Operations().Start(ctx, planned(t, ada, ops.Requeue, ofConsumer("c")).ID,
				ops.StartOptions{Reason: "why", Canary: 501})), bus.ErrInvalidOption},
			"no such":     {testapp.Second(ada.Operations().Start(ctx, 999, terms)), ops.ErrNotFound},
			"an operator": {testapp.Second(operator.As(d, someone(ops.Operator)).Operations().Start(ctx, o.ID, terms)), ops.ErrForbidden},
			"nothing":     {testapp.Second(ada.Operations().Plan(ctx, ops.Discard, ofConsumer("nobody"))), ops.ErrNoMatch},
			"no target":   {testapp.Second(ada.Operations().Plan(ctx, ops.Discard, ops.Target{})), bus.ErrInvalidOption},
			"no action":   {testapp.Second(ada.Operations().Plan(ctx, "dance", ofConsumer("c"))), bus.ErrInvalidOption},
		} {
			if !errors.Is(got.err, got.want) {
				t.Errorf("%s: got error %v, want %v", what, got.err, got.want)
			}
		}
		var started atomic.Int32
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if _, err := ada.Operations().Start(ctx, o.ID, terms); err == nil {
					started.Add(1)
				} else if !errors.Is(err, ops.ErrInProgress) {
					t.Errorf("got error %v, want ErrInProgress", err)
				}
			})
		}
		all.Wait()
		if started.Load() != 1 {
			t.Errorf("it was started %d times, want once", started.Load())
		}
		old := planned(t, ada, ops.Discard, ofConsumer("c"))
		a.Exec("UPDATE message_operations SET created_at = "+testapp.In(db, -11*time.Minute)+" WHERE id = ?", old.ID)
		if _, err := ada.Operations().Start(ctx, old.ID, terms); !errors.Is(err, ops.ErrExpired) || !errors.Is(err, ops.ErrInvalidState) {
			t.Errorf("an old plan: got error %v, want ErrExpired", err)
		}
	})
}

// TestLongNames: who has a name that is not stored as it is starts what that one has planned.
func TestLongNames(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 1, testapp.Consumed("c"))
		d := serviceOf(t, db, a.Registry)
		for _, name := range []string{"CN=" + strings.Repeat("ä", 200), "a\x00b", "a\xffb"} {
			s := operator.As(d, ops.Principal{Name: name, Role: ops.Administrator})
			id := planned(t, s, ops.Requeue, ofConsumer("c")).ID
			testapp.OK(t, testapp.Second(s.Operations().Start(t.Context(), id, ops.StartOptions{Reason: "why"})))
			o, err := s.Operations().Undo(t.Context(), "", id)
			if err != nil || !operator.CreatedBy(o, ops.Principal{Name: name}) || operator.CreatedBy(o, ops.Principal{Name: "eve"}) {
				t.Errorf("got %+v and %v, want one by whom it is", o, err)
			}
		}
	})
}

// TestCanaries: an operation stops itself where most of the first ones fail again, and else goes on.
func TestCanaries(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var fails atomic.Bool
		fails.Store(true)
		a, _ := testapp.NewPoisoned(t, db, 40, bus.Consume("c", func(context.Context, order) error {
			if fails.Load() {
				return errors.New("still broken")
			}
			return nil
		}, bus.MaxAttempts(1)))
		d := serviceOf(t, db, a.Registry)
		s, ctx := operator.As(d, someone(ops.Administrator)), t.Context()
		runner(t, d)
		p := a.Start(testapp.Fast())
		o := planned(t, s, ops.Requeue, ofConsumer("c"))
		_ = testapp.Must[ops.Operation](t)(s.Operations().Start(ctx, o.ID, ops.StartOptions{Rate: 1000, Canary: 5, Reason: "try"}))
		o = awaitState(t, s, o.ID, ops.Paused)
		if o.Changed != 5 || o.Note == "" || len(a.Poisoned()) != 40 {
			t.Errorf("got %+v and %d poisoned, want 5 changed, a note, and 40 poisoned", o, len(a.Poisoned()))
		}
		if _, err := s.Operations().Resume(ctx, "", o.ID, 501); !errors.Is(err, bus.ErrInvalidOption) {
			t.Errorf("501 canaries: got error %v, want %v", err, bus.ErrInvalidOption)
		}
		_ = testapp.Must[ops.Operation](t)(s.Operations().Resume(ctx, "another try", o.ID, 3))
		o = awaitState(t, s, o.ID, ops.Paused)
		if o.Changed != 8 || o.Canary != 3 {
			t.Errorf("after another canary: got %+v, want 8 changed by canaries of 5 and 3", o)
		}
		fails.Store(false)
		o = testapp.Must[ops.Operation](t)(s.Operations().Resume(ctx, "", o.ID, 0))
		o = awaitState(t, s, o.ID, ops.Done)
		testapp.Eventually(t, "those that were left are done", func() bool { return len(a.Poisoned()) == 8 && len(a.Pending()) == 0 })
		again := planned(t, s, ops.Requeue, ofConsumer("c"))
		_ = testapp.Must[ops.Operation](t)(s.Operations().Start(ctx, again.ID,
			ops.StartOptions{Rate: 1000, Canary: 10, Reason: "fewer than canaries"}))
		o = awaitState(t, s, again.ID, ops.Done)
		if o.Changed != 8 {
			t.Errorf("got %+v, want 8 changed", o)
		}
		p.MustStop()
	})
}

// TestPace: an operation changes as many messages in a second as it was told.
func TestPace(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 60, testapp.Consumed("c"))
		d := serviceOf(t, db, a.Registry)
		s := operator.As(d, someone(ops.Administrator))
		runner(t, d)
		o := planned(t, s, ops.Discard, ofConsumer("c"))
		_ = testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Rate: 30, Reason: "slowly"}))
		o = awaitState(t, s, o.ID, ops.Done)
		if took := o.FinishedAt.Sub(o.StartsAt); took < 1700*time.Millisecond { // it begins with those of a tick
			t.Errorf("60 at 30/s took %s, want 2 s", took)
		}
	})
}

// TestNotesOfDecisions: who decides and why stands with the operation, beside why that was started and why it had paused
// itself, however long all of these are.
func TestNotesOfDecisions(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 1, testapp.Consumed("c"))
		s, ctx := operator.As(serviceOf(t, db, a.Registry), someone(ops.Administrator)), t.Context()
		started := testapp.Must[ops.Operation](t)(s.Operations().Start(ctx, planned(t, s, ops.Discard, ofConsumer("c")).ID,
			ops.StartOptions{Reason: "void"}))
		pause := func() { a.Exec("UPDATE message_operations SET state = 'paused' WHERE id = ?", started.ID) }
		a.Exec("UPDATE message_operations SET note = 'failed' WHERE id = ?", started.ID)
		pause()
		const cause, more = "failed", "; before that: "
		o := testapp.Must[ops.Operation](t)(s.Operations().Resume(ctx, strings.Repeat("mended ", 285), started.ID, 0))
		first := "resumed by ada: " + strings.Repeat("mended ", 285)
		if before, after, found := strings.Cut(o.Note, more); !found || after != cause || !strings.HasPrefix(first, before) ||
			o.Reason != "void" {
			t.Errorf("continued: got %q for %q, want who and why, and %q", o.Note, o.Reason, cause)
		}
		pause()
		continued := o.Note
		if o = testapp.Must[ops.Operation](t)(s.Operations().Stop(ctx, "enough", started.ID)); o.Note != "stopped by ada: enough"+
			more+continued || o.Reason != "void" {
			t.Errorf("stopped: got %q for %q, want %q added to %q", o.Note, o.Reason, "enough", continued)
		}
		for reason, want := range map[string]string{"": "undone by ada", "the wrong ones": "undone by ada: the wrong ones"} {
			o = testapp.Must[ops.Operation](t)(s.Operations().Undo(ctx, reason, planned(t, s, ops.Discard, ofConsumer("c")).ID))
			if o.Note != want {
				t.Errorf("undone for %q: got %q, want %q", reason, o.Note, want)
			}
		}
	})
}

// TestStop: what an operation has not changed when it is stopped stays as it is.
func TestStop(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 100, testapp.Consumed("c"))
		d := serviceOf(t, db, a.Registry)
		s, ctx := operator.As(d, someone(ops.Administrator)), t.Context()
		runner(t, d)
		o := planned(t, s, ops.Discard, ofConsumer("c"))
		_ = testapp.Must[ops.Operation](t)(s.Operations().Start(ctx, o.ID, ops.StartOptions{Rate: 20, Reason: "why"}))
		testapp.Eventually(t, "it has begun", func() bool { return len(a.Poisoned()) < 100 })
		stopped := testapp.Must[ops.Operation](t)(s.Operations().Stop(ctx, "", o.ID))
		left := len(a.Poisoned())
		if stopped.State != ops.Stopped || left == 0 || int64(100-left) != stopped.Changed {
			t.Errorf("got %+v with %d left", stopped, left)
		}
		<-time.After(500 * time.Millisecond)
		if now := len(a.Poisoned()); now != left {
			t.Errorf("%d are left later, want %d", now, left)
		}
		for what, err := range map[string]error{
			"undo":     testapp.Second(s.Operations().Undo(ctx, "", o.ID)),
			"start":    testapp.Second(s.Operations().Start(ctx, o.ID, ops.StartOptions{Reason: "again"})),
			"continue": testapp.Second(s.Operations().Resume(ctx, "", o.ID, 0)),
			"rate":     testapp.Second(s.Operations().SetRate(ctx, "", o.ID, 5)),
		} {
			if !errors.Is(err, ops.ErrInvalidState) {
				t.Errorf("%s: got error %v, want ErrInvalidState", what, err)
			}
		}
	})
}

// TestChangesAreAudited: each change is known with who and why; what the audit refuses is not done.
// Promise: audit
func TestChangesAreAudited(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 4, testapp.Consumed("c"))
		a.ProduceMany(2)
		refuse := errors.New("not on Fridays")
		var refusing atomic.Bool
		d := serviceOf(t, db, a.Registry, func(c *ops.Config) {
			c.Audit = func(_ context.Context, c ops.Change) error {
				if refusing.Load() {
					return refuse
				}
				return nil
			}
		})
		s, ctx := operator.As(d, someone(ops.Administrator)), t.Context()
		pending := a.Pending()
		changes := map[string]func() error{
			"pause":   func() error { return s.Consumers().Pause(ctx, "c", "burns") },
			"requeue": func() error { return testapp.Second(s.Poisoned().Requeue(ctx, "fixed", 1, 2)) },
			"discard": func() error { return testapp.Second(s.Poisoned().Discard(ctx, "old", 3)) },
			"cancel":  func() error { return testapp.Second(s.Messages().Cancel(ctx, "twice", pending[0].ID)) },
			"resume":  func() error { return s.Consumers().Resume(ctx, "other", "done") },
		}
		testapp.OK(t, a.Admin().Pause(ctx, db, "other", admin.PauseNote{}))
		o := planned(t, s, ops.Discard, ofConsumer("c"))
		refusing.Store(true)
		_, err := s.Operations().Start(ctx, o.ID, ops.StartOptions{Reason: "why"})
		if now := operationOf(t, s, o.ID); !errors.Is(err, refuse) || now.State != ops.Planned {
			t.Errorf("start: got error %v and %+v, want the audit's", err, now)
		}
		a.Exec("DELETE FROM message_operations")
		for what, change := range changes {
			if err := change(); !errors.Is(err, refuse) {
				t.Errorf("%s: got error %v, want the audit's", what, err)
			}
		}
		if len(a.Pending()) != 2 || len(a.Poisoned()) != 4 || a.Count("SELECT count(*) FROM paused_consumers") != 1 ||
			a.Count("SELECT count(*) FROM message_operations") != 0 {
			t.Error("something was changed all the same")
		}
		refusing.Store(false)
		for _, what := range []string{"pause", "requeue", "discard", "cancel", "resume"} {
			if err := changes[what](); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		log, _, err := s.Operations().List(ctx, admin.Page{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range log {
			got = append(got, fmt.Sprintf("%s by %s: %s (%s, %d)", o.Action, o.Actor, o.Reason, o.State, o.Changed))
		}
		want := []string{"resume by ada: done (done, 0)", "cancel by ada: twice (done, 1)", "discard by ada: old (done, 1)",
			"requeue by ada: fixed (done, 2)", "pause by ada: burns (done, 0)"}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got\n%v, want\n%v", got, want)
		}
	})
}
