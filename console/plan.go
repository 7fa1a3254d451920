package console

import (
	"errors"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// planForm plans a change of all messages that match, which changes nothing yet. The operation's page shows the plan.
type planForm struct {
	action ops.Action
	target ops.Target
	from   link // the page of the form
}

func (f *planForm) read(q *params) {
	f.action = ops.Action(q.text("do"))
	switch f.action {
	case ops.Requeue, ops.Discard:
		filter := q.poisoned()
		f.target.Poisoned, f.from = &filter.Filter, link{"group", filter.Fields()}
	case ops.RunNow, ops.Reschedule, ops.Cancel:
		filter := q.pending()
		f.target.Pending, f.from = &filter.Filter, link{"messages", filter.Fields()}
	case ops.RetryParked, ops.Rebuild, ops.Promote:
		f.target.Projection, f.target.Version = q.text("projection"), q.version()
		f.from = linkTo("projection", "name", f.target.Projection, "version", f.target.Version)
	default:
		q.fail("Unknown action.")
	}
	if f.action == ops.Reschedule {
		f.target.At = q.instant("at")
		if f.target.At.IsZero() {
			q.fail("The due time is missing.")
		}
	}
}

func (f *planForm) submit(r *request) (link, error) {
	planned, err := r.session.Operations().Plan(r.Context(), f.action, f.target)
	if errors.Is(err, ops.ErrNoMatch) {
		r.setFlash(outcome{code: "nothing"})
		return f.from, nil
	}
	return linkTo("operation", "id", planned.ID), err
}

const (
	mostRate   = 100_000 // see ops.StartOptions
	mostCanary = 500
)

// startForm starts a plan.
type startForm struct {
	id      int64
	options ops.StartOptions
}

func (f *startForm) read(q *params) {
	f.id = q.needID("operation")
	f.options.Rate, f.options.Reason = q.small("rate", mostRate, 0), q.text("reason")
	if q.text("canary") == "0" {
		f.options.Canary = -1
	} else {
		f.options.Canary = q.small("canary", mostCanary, 0)
	}
	if f.options.Reason == "" {
		q.fail("%s", noReason("operation"))
	}
}

func (f *startForm) submit(r *request) (link, error) {
	started, err := r.session.Operations().Start(r.Context(), f.id, f.options)
	switch {
	case errors.Is(err, ops.ErrInProgress) && started.ID != 0:
		r.setFlash(outcome{code: "already"})
		return linkTo("operation", "id", started.ID), nil
	case err == nil:
		r.setFlash(outcome{code: "started"})
	}
	return linkTo("operation", "id", f.id), err
}
