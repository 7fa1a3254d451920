package ops_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
		o = testapp.Must[ops.Operation](t)(s.Operations().Resume(ctx, "", o.ID, 3))
		if o.State != ops.Canary || o.Changed != 5 {
			t.Errorf("resumed: got %+v, want canaries", o)
		}
		if o, err := s.Operations().Undo(ctx, "", o.ID); !errors.Is(err, ops.ErrInvalidState) {
			t.Errorf("undone: got %+v and error %v, want ErrInvalidState: 5 are changed", o, err)
		}
		o = testapp.Must[ops.Operation](t)(s.Operations().Stop(ctx, "", o.ID))
		if o.State != ops.Stopped || o.Changed != 5 {
			t.Errorf("stopped: got %+v, want that, with 5 changed", o)
		}
	})
}

// TestCanariesThatWaitPauseNothing: an operation whose canaries do not run for long is reported, and goes on once they have run.
func TestCanariesThatWaitPauseNothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 9, testapp.Consumed("c"))
		var judged atomic.Int64
		d := serviceOf(t, watched(db, func(query string) {
			if strings.Contains(query, "attempts = 0") {
				judged.Add(1)
			}
		}), a.Registry, func(c *ops.Config) { c.UndoWindow = -1 })
		s, ctx := operator.As(d, someone(ops.Administrator)), t.Context()
		begin := func() (stop func()) {
			within, cancel := context.WithCancel(context.WithoutCancel(ctx))
			done := watchedRunner(t, within, d)
			return func() { cancel(); <-done }
		}
		testapp.OK(t, s.Consumers().Pause(ctx, "c", "the provider is away"))
		o := testapp.Must[ops.Operation](t)(s.Operations().Start(ctx, planned(t, s, ops.Requeue, ofConsumer("c")).ID,
			ops.StartOptions{Canary: 3, Reason: "fixed"}))
		stop := begin()
		testapp.Eventually(t, "its canaries wait", func() bool { return operationOf(t, s, o.ID).Changed == 3 })
		wantFinding(t, doctor(t, ctx, db, a.Registry), "operations", ops.OK)
		stop()
		o = operationOf(t, s, o.ID)
		if o.State != ops.Canary || o.Note != "" {
			t.Errorf("soon: got %+v, want no note", o)
		}
		var trial string
		testapp.OK(t, db.NewRaw("SELECT canaries FROM message_operations WHERE id = ?", o.ID).Scan(ctx, &trial))
		a.Exec("UPDATE message_operations SET canaries = ? WHERE id = ?", regexp.MustCompile(`"since":"[^"]+"`).ReplaceAllString(trial,
			`"since":"`+time.Now().Add(-11*time.Minute).UTC().Format(time.RFC3339Nano)+`"`), o.ID)
		judged.Store(0)
		stop = begin()
		defer func() { stop() }()
		testapp.Eventually(t, "the runner looks at them", func() bool { return judged.Load() > 0 })
		stop() // after what it makes of them
		stop = begin()
		testapp.Eventually(t, "the runner looks at them again", func() bool { return judged.Load() > 1 })
		const why = "not all of the 3 canary messages have run within 10 minutes"
		o = operationOf(t, s, o.ID)
		if o.State != ops.Canary || o.Note != why {
			t.Errorf("after 11 minutes: got %+v, want canaries, and the note %q", o, why)
		}
		wantFinding(t, doctor(t, ctx, db, a.Registry), "operations", ops.Warning, "The canary waits: "+why)
		wantFinding(t, testapp.Must[[]ops.Finding](t)(operator.As(serviceOf(t, db, a.Registry), someone(ops.Viewer)).Check(ctx)),
			"operations", ops.Warning, "The canary waits: "+why)
		a.Start(testapp.Fast())
		testapp.OK(t, s.Consumers().Resume(ctx, "c", "it is back"))
		o = awaitState(t, s, o.ID, ops.Done)
		if o.Changed != 9 || o.Note != "" {
			t.Errorf("got %+v, want 9 changed, and no note", o)
		}
	})
}
