package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// operationReport reports the progress of an operation, and which process runs it.
type operationReport struct {
	*output
	session *operator.Session
	service *ops.Service // of the session
}

func newOperationReport(a *app, session *operator.Session) operationReport {
	return operationReport{a.output, session, a.service}
}

const noRunner = "No live process runs operations"

// hasRunner reports whether a live process can run an operation. It is true if that cannot be read: the operation is stored.
func (r operationReport) hasRunner(ctx context.Context, o ops.Operation) bool {
	found, err := r.session.HasRunner(ctx, o.ID, o.Target.Projection)
	return found || err != nil
}

// runner says which process runs an operation.
func (r operationReport) runner(ctx context.Context, o ops.Operation) string {
	switch found := r.hasRunner(ctx, o); {
	case found && o.Target.Projection != "":
		return fmt.Sprintf("A process that has projection %q and runs operations will run it.", o.Target.Projection)
	case found:
		return "A process that runs operations runs it."
	case o.Target.Projection != "":
		return fmt.Sprintf("%s and projection %q: start one.", noRunner, o.Target.Projection)
	default:
		return fmt.Sprintf("%s: start one, or use asyncmonolith operations run %d.", noRunner, o.ID)
	}
}

// noteUntaken warns if no process runs an operation that is in progress.
func (r operationReport) noteUntaken(ctx context.Context, o ops.Operation) {
	if !over(o) && !r.hasRunner(ctx, o) {
		r.note("%s", r.runner(ctx, o))
	}
}

// already reports that an operation with the same target is in progress. If that has paused itself, nothing happens, which is
// an error.
func (r operationReport) already(o ops.Operation) error {
	text := fmt.Sprintf("Operation %d, started by %s, does the same and has not ended.", o.ID, o.Actor)
	if o.State != ops.Paused {
		r.note("%s", text)
		return nil
	}
	r.note("%s It has paused itself and waits for a decision.", text)
	r.note("To resume it:  asyncmonolith operations resume %d --yes --reason TEXT", o.ID)
	r.note("To stop it:    asyncmonolith operations stop %d --reason TEXT", o.ID)
	err := fmt.Errorf("%w: operation %d has paused itself", errPartly, o.ID)
	if r.json {
		return errors.Join(r.line(o), err)
	}
	return err
}

// started reports that an operation is in progress, and how to undo and to watch it.
func (r operationReport) started(ctx context.Context, o ops.Operation) error {
	back := fmt.Sprintf("To undo it before then:    asyncmonolith operations undo %d", o.ID)
	if o.State != ops.Waiting {
		back = fmt.Sprintf("To stop it:                asyncmonolith operations stop %d", o.ID)
	}
	err := errors.Join(
		r.say("%s. %s", stateText(o), r.runner(ctx, o)),
		r.say("%s", back),
		r.say("To watch it:               asyncmonolith operations watch %d", o.ID))
	if o.Target.Projection == "" {
		err = errors.Join(err, r.say("To run it from here:       asyncmonolith operations run %d", o.ID))
	}
	return err
}

// noteWaiting says of which consumers requeued messages wait: those that are paused, and those of no live process.
func (r operationReport) noteWaiting(ctx context.Context, consumers []string) {
	o, err := r.session.Overview(ctx)
	if err != nil {
		return // it is only a hint
	}
	live := liveConsumers(o)
	for _, name := range slices.Compact(slices.Sorted(slices.Values(consumers))) {
		if !slices.Contains(live, name) {
			r.note("No live process consumes %s: requeued messages wait for one.", name)
		}
	}
	for _, q := range o.Queues {
		if q.PausedAt.IsZero() || !slices.Contains(consumers, q.Consumer) {
			continue
		}
		by := ""
		if q.PausedBy != "" {
			by = " by " + q.PausedBy
		}
		r.note("%s is paused%s: requeued messages wait until it is resumed.", q.Consumer, by)
	}
}

func liveConsumers(o operator.Overview) (names []string) {
	for _, p := range o.Processes {
		for _, c := range p.Consumers {
			if p.Status == admin.ProcessAlive {
				names = append(append(names, c.Name), c.Former...)
			}
		}
	}
	return names
}

func (r operationReport) write(o ops.Operation) error { return r.result(o, stateText(o)+".", nil) }

// outcome writes the final state of an operation, and returns an error unless all is done.
func (r operationReport) outcome(o ops.Operation) error {
	var err error
	switch {
	case o.State == ops.Done && o.Skipped == 0:
	case o.State == ops.Paused:
		err = fmt.Errorf("%w: the operation paused itself: see asyncmonolith operations get %d --show-payloads, "+
			"then operations resume %d or stop %d", errPartly, o.ID, o.ID, o.ID)
	default:
		err = errPartly
	}
	err = r.result(o, stateText(o)+".", err)
	if o.Skipped > 0 {
		r.note("Skipped messages stay unchanged: their insert id is pending, a process holds them, or the preview does not name their consumer.")
	}
	if o.State == ops.Done && o.Preview != nil && o.Changed+o.Skipped < int64(o.Preview.Messages) {
		r.note("The other messages no longer matched: they have run, or were changed since the plan.")
	}
	return err
}

// interrupted says how to go on with an operation after Ctrl-C.
func (r operationReport) interrupted(id int64, o ops.Operation) error {
	r.note("Not stopped: %s. A live process that runs operations continues it, if there is one.", stateText(o))
	if o.Target.Projection == "" {
		r.note("To run it from here:  asyncmonolith operations run %d", id)
	}
	if o.State == ops.Waiting {
		r.note("To undo it:           asyncmonolith operations undo %d", id)
	} else {
		r.note("To stop it:           asyncmonolith operations stop %d", id)
	}
	return fmt.Errorf("%w: operation %d has not ended", errPartly, id)
}

// over reports whether an operation stays in its state until a person changes that.
func over(o ops.Operation) bool {
	switch o.State {
	case ops.Done, ops.Undone, ops.Stopped, ops.Paused, ops.Planned, ops.Started:
		return true
	default:
		return false
	}
}

func stateText(o ops.Operation) string {
	text := fmt.Sprintf("operation %d (%s) is %s", o.ID, o.Action, o.State)
	if o.State == ops.Waiting {
		return text + ", and starts at " + show.Value(o.StartsAt) + " UTC"
	}
	text += fmt.Sprintf(": %d", o.Changed)
	if o.Preview != nil && o.Preview.Messages > 0 {
		text += fmt.Sprintf(" of %d", o.Preview.Messages)
	}
	text += " changed"
	if o.Skipped > 0 {
		text += fmt.Sprintf(", %d skipped", o.Skipped)
	}
	if o.State == ops.Canary && o.Changed >= int64(o.Canary) {
		text += ", waiting for canaries to run"
	}
	if o.Note != "" {
		text += "; " + o.Note
	}
	return text
}
