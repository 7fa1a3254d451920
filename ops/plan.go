package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	planTime  = 10 * time.Minute // a plan can be started this long
	planKept  = time.Hour        // a plan that is not started is kept this long
	planSweep = 100              // expired plans deleted at once

	defaultRate   = 100
	mostRate      = 100_000
	defaultCanary = 10
	mostCanary    = 500
)

// StartOptions configure how an operation is carried out.
type StartOptions struct {
	// Rate is how many messages change per second: 1 to 100,000. Defaults to 100.
	Rate int
	// Canary is how many messages a [Requeue] requeues first: 1 to 500. The operation pauses if
	// more than a tenth of them fail again. Defaults to 10; negative values mean none.
	Canary int
	// Reason is written to the audit. It is required.
	Reason string
}

func (t StartOptions) check(a Action) (StartOptions, error) {
	t.Rate, t.Canary = cmp.Or(t.Rate, defaultRate), cmp.Or(t.Canary, defaultCanary)
	if t.Canary < 0 || a != Requeue {
		t.Canary = 0
	}
	var errs []error
	if t.Rate < 1 || t.Rate > mostRate {
		errs = append(errs, fmt.Errorf("%w: rate %d: 1 to %d are allowed", bus.ErrInvalidOption, t.Rate, mostRate))
	}
	if t.Canary > mostCanary {
		errs = append(errs, fmt.Errorf("%w: canary %d: at most %d are allowed", bus.ErrInvalidOption, t.Canary, mostCanary))
	}
	if t.Reason == "" {
		errs = append(errs, fmt.Errorf("%w: the reason is empty", bus.ErrInvalidOption))
	}
	return t, errors.Join(errs...)
}

// Plan stores a preview of what an action would do to everything that its target matches now: see
// [Preview]. It changes no message. The error is [ErrNoMatch] if nothing matches, [ErrForbidden] if
// the principal may not do the action, and bus.ErrInvalidOption for an invalid target.
//
// The actions are [Requeue] and [Discard] of poisoned messages; [Cancel], [Reschedule] and [RunNow]
// of pending ones; and [RetryParked], [Rebuild] and [Promote] of a projection. Messages that arrive
// or come to match later are not included. Consumers that the preview does not name are not
// changed. A version may be promoted if it is at most 1,000 positions behind; otherwise the
// operation pauses itself.
//
// The same principal can start the plan for 10 minutes. Plans are deleted after an hour. At most
// two plans are made at once, in at most 10 s each including the wait; otherwise Plan returns
// [ErrBusy].
func (s *Operations) Plan(ctx context.Context, a Action, target Target) (Operation, error) {
	o, err := s.plan(ctx, a, target)
	if err != nil {
		return Operation{}, fmt.Errorf("ops: plan %s: %w", a, err)
	}
	return s.operation(ctx, o), nil
}

func (s *Operations) plan(ctx context.Context, a Action, target Target) (Operation, error) {
	preview, err := s.preview(ctx, a, &target)
	if err != nil {
		return Operation{}, err
	}
	pinned, targetErr := asJSON(pinnedTarget{target, preview.ids})
	seen, seenErr := asJSON(preview)
	if err := errors.Join(targetErr, seenErr); err != nil {
		return Operation{}, err
	}
	d := s.service
	if err := d.store.Operations.ForgetPlans(ctx, d.config.DB, string(Planned), planKept, planSweep); err != nil {
		return Operation{}, fmt.Errorf("delete old plans: %w", err)
	}
	row := store.Operation{
		Kind: string(a), Actor: s.who.Name, Target: pinned, Preview: seen,
		State: string(Planned), Rate: defaultRate, UpToID: preview.UpTo,
	}
	id, err := d.store.Operations.Add(ctx, d.config.DB, row, false)
	if err != nil {
		return Operation{}, err
	}
	return d.operationIn(ctx, d.config.DB, id)
}

// Preview returns what [Operations.Plan] would store, and writes nothing. Its errors are those of
// Plan.
func (s *Operations) Preview(ctx context.Context, a Action, target Target) (Preview, error) {
	preview, err := s.preview(ctx, a, &target)
	if err != nil {
		return Preview{}, fmt.Errorf("ops: preview %s: %w", a, err)
	}
	return preview, nil
}

// preview pins the target to what matches now.
func (s *Operations) preview(ctx context.Context, a Action, target *Target) (p Preview, err error) {
	if err := s.may(a, target.consumer()); err != nil {
		return Preview{}, err
	}
	kind, ok := kinds()[a]
	if !ok {
		return Preview{}, fmt.Errorf(
			"%w: %q: use one of requeue, discard, cancel, reschedule, run_now, retry_parked, rebuild, promote", bus.ErrInvalidOption,
			string(a),
		)
	}
	if _, err := asJSON(*target); err != nil {
		return Preview{}, err
	}
	if err := kind.check(*target); err != nil {
		return Preview{}, err
	}
	if target.Poisoned != nil {
		if err := s.maySearchPoisoned(ctx, s.service.config.DB, *target.Poisoned); err != nil {
			return Preview{}, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, previewTime, ErrBusy)
	defer cancel()
	leave, err := s.service.enter(ctx, s.service.previews, previewTime)
	if err != nil {
		return Preview{}, err
	}
	defer leave()
	if p, err = kind.preview(ctx, s.service, target); err != nil {
		return Preview{}, err
	}
	if err := s.mayEach(a, p.Consumers); err != nil {
		return Preview{}, err
	}
	err = s.already(ctx, Operation{Action: a, Target: *target, Preview: &p})
	return p, err
}

// already sets the previewed operation's Duplicate and Overlapping.
func (s *Operations) already(ctx context.Context, o Operation) error {
	rows, err := briefly(ctx, s.service, s.service.config.DB, lookTime, func(ctx context.Context, db bun.IDB) ([]store.Operation, error) {
		return s.service.store.Operations.List(
			ctx, db, store.OperationFilter{States: names(Planned, Waiting, Canary, Running, Paused)}, mostOpen,
		)
	})
	p, planned := o.Preview, int64(0)
	for _, row := range rows {
		switch other := newOperation(row); {
		case other.sameAs(o) && other.underWay():
			p.Duplicate = other.ID
		case other.sameAs(o):
			if !other.createdBy(s.who) && row.Now.Sub(other.CreatedAt) < planTime {
				planned = other.ID
			}
		case other.underWay() && other.overlaps(o):
			p.Overlapping = append(p.Overlapping, other.ID)
		}
	}
	p.Duplicate = cmp.Or(p.Duplicate, planned)
	return err
}

// mostOpen limits how many unfinished operations are read.
const mostOpen = 1000

func names(states ...OperationState) []string {
	return store.Each(states, func(s OperationState) string { return string(s) })
}
