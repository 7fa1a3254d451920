package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// operationReport says how far an operation is, and which process runs it.
type operationReport struct {
	*output
	session *ops.Session
	service *ops.Service // of the session
}

func newOperationReport(a *app, session *ops.Session) operationReport {
	return operationReport{a.output, session, a.service}
}

// noRunner is why nothing would happen by itself.
const noRunner = "No live process runs ops.Runner, so nothing happens by itself"

// hasRunner reports whether a live process runs operations, and true if that cannot be read: what the person asked for
// is done.
func (r operationReport) hasRunner(ctx context.Context) bool {
	found, err := r.session.HasRunner(ctx)
	return found || err != nil
}

// runner says which process runs an operation that is not run from here.
func (r operationReport) runner(ctx context.Context, o ops.Operation) string {
	switch found := r.hasRunner(ctx); {
	case found && o.Target.Projection != "":
		return "A process that runs ops.Runner, and has the projection's code, carries it out."
	case found:
		return "A process that runs ops.Runner carries it out."
	case o.Target.Projection != "":
		return noRunner + ": start a process that runs it, and has the projection's code."
	default:
		return fmt.Sprintf("%s: asyncmonolith operations run %d carries it out from here.", noRunner, o.ID)
	}
}

// noteUntaken says that no process runs an operation which is under way, unless one does.
func (r operationReport) noteUntaken(ctx context.Context, o ops.Operation) {
	if !over(o) && !r.hasRunner(ctx) {
		r.note("%s", r.runner(ctx, o))
	}
}

// already says that an operation with the same target is under way. One that has paused itself does nothing of what
// was asked.
func (r operationReport) already(o ops.Operation) error {
	text := fmt.Sprintf("The same is under way: operation %d, started by %s.", o.ID, o.Actor)
	if o.State != ops.Paused {
		r.note("%s", text)
		return nil
	}
	r.note("%s It has paused itself, and nothing more happens until a person decides.", text)
	r.note("To have it go on:  asyncmonolith operations resume %d --yes --reason TEXT", o.ID)
	r.note("To end it:         asyncmonolith operations stop %d --reason TEXT", o.ID)
	err := fmt.Errorf("%w: operation %d has paused itself", errPartly, o.ID)
	if r.json {
		return errors.Join(r.line(o), err)
	}
	return err
}

// started says of an operation that is under way how to take it back and how to see how far it is.
func (r operationReport) started(ctx context.Context, o ops.Operation) error {
	back := fmt.Sprintf("To take it back before then:  asyncmonolith operations undo %d", o.ID)
	if o.State != ops.Waiting {
		back = fmt.Sprintf("To end it where it is:        asyncmonolith operations stop %d", o.ID)
	}
	here := fmt.Sprintf("\nTo carry it out from here:    asyncmonolith operations run %d", o.ID)
	if o.Target.Projection != "" {
		here = ""
	}
	return errors.Join(
		r.say("%s. %s", stateText(o), r.runner(ctx, o)),
		r.say("%s", back),
		r.say("To see how far it is:         asyncmonolith operations watch %d%s", o.ID, here))
}

// notePaused says which of some consumers are paused, since what is requeued waits then.
func (r operationReport) notePaused(ctx context.Context, consumers []string) {
	o, err := r.session.Overview(ctx)
	if err != nil {
		return // it is a hint
	}
	for _, q := range o.Queues {
		if q.PausedAt.IsZero() || !slices.Contains(consumers, q.Consumer) {
			continue
		}
		by := ""
		if q.PausedBy != "" {
			by = " by " + q.PausedBy
		}
		r.note("%s is paused%s: what is requeued waits until it is resumed.", q.Consumer, by)
	}
}

// write writes what an operation is now.
func (r operationReport) write(o ops.Operation) error { return r.result(o, stateText(o)+".", nil) }

// outcome is what became of an operation.
func (r operationReport) outcome(o ops.Operation) error {
	var err error
	switch {
	case o.State == ops.Done && o.Skipped == 0:
	case o.State == ops.Paused:
		err = fmt.Errorf("%w: it has paused itself: asyncmonolith operations show %d --show-payloads says why, "+
			"then operations resume %d or stop %d", errPartly, o.ID, o.ID, o.ID)
	default:
		err = errPartly
	}
	return r.result(o, stateText(o)+".", err)
}

// left says what becomes of an operation that is not watched from here any more.
func (r operationReport) left(id int64, o ops.Operation) error {
	r.note("Left as it is: %s. A live process that runs ops.Runner goes on with it, if there is one.", stateText(o))
	r.note("To go on from here:  asyncmonolith operations run %d", id)
	if o.State == ops.Waiting {
		r.note("To take it back:     asyncmonolith operations undo %d", id)
	} else {
		r.note("To end it:           asyncmonolith operations stop %d", id)
	}
	return fmt.Errorf("%w: operation %d is left under way", errPartly, id)
}

// over reports whether nothing more happens by itself.
func over(o ops.Operation) bool {
	switch o.State {
	case ops.Done, ops.Undone, ops.Stopped, ops.Paused, ops.Planned, ops.Started:
		return true
	default:
		return false
	}
}

// stateText is how far an operation is.
func stateText(o ops.Operation) string {
	text := fmt.Sprintf("operation %d (%s) is %s", o.ID, o.Action, o.State)
	if o.State == ops.Waiting {
		return text + ", and begins at " + show.Value(o.StartsAt) + " UTC"
	}
	text += fmt.Sprintf(": %d", o.Changed)
	if o.Preview != nil && o.Preview.Messages > 0 {
		of := fmt.Sprint(o.Preview.Messages)
		if o.Preview.More {
			of += "+"
		}
		text += " of " + of
	}
	text += " changed"
	if o.Skipped > 0 {
		text += fmt.Sprintf(", %d skipped", o.Skipped)
	}
	if o.Note != "" {
		text += "; " + o.Note
	}
	return text
}
