package console

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// operationPage is one operation.
type operationPage struct {
	operation
	Mine    bool     // the principal has planned it
	Expired bool     // it is a plan that is too old to be started
	Paused  []string // consumers of it that are
	Back    string
	At      time.Time // when it was read
	Runner  bool      // a live process can carry out operations
}

const (
	planTime  = 10 * time.Minute // for which a plan can be started, see operator.Session.Start
	lateStart = 30 * time.Second // after it was to begin
)

func (p *operationPage) read(q *params) { p.ID = q.needID("id") }

func (p *operationPage) load(r *request) (err error) {
	if p.Operation, err = r.session.Operations().Get(r.Context(), p.ID); err != nil {
		return err
	}
	p.At, p.Mine, p.Back = time.Now(), operator.CreatedBy(p.Operation, r.who), p.aboutLink()
	p.Expired = p.State == ops.Planned && time.Since(p.CreatedAt) > planTime
	if p.Orphan() { // until a runner is found
		if p.Runner, err = r.session.HasRunner(r.Context(), p.ID, p.Target.Projection); err != nil {
			return err
		}
	}
	if p.State == ops.Planned && !p.Danger() && p.Preview != nil {
		all, err := r.queues()
		p.Paused = all.paused(p.Preview.Consumers...)
		return err
	}
	return nil
}

func (p *operationPage) layout() layout { return layout{title: p.Title(), tab: "operations"} }

// Due reports whether it waits although the time to begin is over.
func (p *operationPage) Due() bool {
	return p.State == ops.Waiting && p.At.Sub(p.StartsAt) >= time.Second
}

// Late reports whether it waits for longer than a runner with room takes to find it.
func (p *operationPage) Late() bool { return p.Due() && p.At.Sub(p.StartsAt) > lateStart }

// Orphan reports whether it needs a runner, and no process has one.
func (p *operationPage) Orphan() bool {
	return !p.Runner && slices.Contains([]ops.OperationState{ops.Planned, ops.Waiting, ops.Canary, ops.Running}, p.State)
}

// Moving reports whether a runner carries it out.
func (p *operationPage) Moving() bool {
	return p.Runner && (p.State == ops.Canary || p.State == ops.Running)
}

// rateForm changes how fast an operation goes.
type rateForm struct {
	id     int64
	rate   int
	reason string
}

func (f *rateForm) read(q *params) {
	f.id, f.rate, f.reason = q.needID("operation"), q.small("rate", mostRate, 0), q.text("reason")
	if f.rate == 0 {
		q.fail("rate is missing: give the messages per second.")
	}
}

func (f *rateForm) submit(r *request) (link, error) {
	if _, err := r.session.Operations().SetRate(r.Context(), f.reason, f.id, f.rate); err != nil {
		return link{}, err
	}
	r.setFlash(outcome{code: "rate"})
	return linkTo("operation", "id", f.id), nil
}
