package console

import (
	"errors"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// plan makes a plan of a change of all that match, which changes nothing yet. It goes on with the
// operation's page, which says what it would change.
func (v *request) plan() (link, error) {
	a := v.sends()
	action := ops.Action(a.text("do"))
	target, from := ops.Target{}, link{}
	switch action {
	case ops.Requeue, ops.Discard:
		f := a.poisoned()
		target.Poisoned, from = &f.Filter, link{"group", f.Fields()}
	case ops.RunNow, ops.Reschedule, ops.Cancel:
		f := a.pending()
		target.Pending, from = &f.Filter, link{"messages", f.Fields()}
	case ops.RetryParked, ops.Rebuild, ops.Promote:
		target.Projection, target.Version = a.text("projection"), a.small("version", 1<<31-1, 1)
		from = linkTo("projection", "name", target.Projection, "version", target.Version)
	default:
		a.fail("There is no such action.")
	}
	if action == ops.Reschedule {
		if target.At = a.instant("at"); target.At.IsZero() {
			a.fail("Say when the messages are to be due.")
		}
	}
	if err := a.err(); err != nil {
		return link{}, err
	}
	planned, err := v.session.Operations().Plan(v.ctx(), action, target)
	if errors.Is(err, ops.ErrNoMatch) {
		v.tell(outcome{code: "nothing"})
		return from, nil
	}
	return linkTo("operation", "id", planned.ID), err
}

const (
	mostRate   = 100_000 // see ops.StartOptions
	mostCanary = 500
)

// start starts a plan.
func (v *request) start() (link, error) {
	a := v.sends()
	id, terms := a.needID("operation"), ops.StartOptions{Rate: a.small("rate", mostRate, 0), Reason: a.text("reason")}
	if text := a.text("canary"); text == "0" {
		terms.Canary = -1
	} else {
		terms.Canary = a.small("canary", mostCanary, 0)
	}
	if terms.Reason == "" {
		a.fail("Say why: the reason is missing. It is kept with the operation, for others to see.")
	}
	if err := a.err(); err != nil {
		return link{}, err
	}
	started, err := v.session.Operations().Start(v.ctx(), id, terms)
	switch {
	case errors.Is(err, ops.ErrInProgress) && started.ID != 0:
		v.tell(outcome{code: "already"})
		return linkTo("operation", "id", started.ID), nil
	case err == nil:
		v.tell(outcome{code: "started"})
	}
	return linkTo("operation", "id", id), err
}

// rate changes how fast an operation goes.
func (v *request) rate() (link, error) {
	a := v.sends()
	id, rate := a.needID("operation"), a.small("rate", mostRate, 0)
	if rate == 0 {
		a.fail("rate is missing: how many messages change in a second.")
	}
	if err := a.err(); err != nil {
		return link{}, err
	}
	if _, err := v.session.Operations().SetRate(v.ctx(), a.text("reason"), id, rate); err != nil {
		return link{}, err
	}
	v.tell(outcome{code: "rate"})
	return linkTo("operation", "id", id), nil
}
