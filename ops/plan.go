package ops

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	planTime  = 10 * time.Minute // for which a plan can be started
	planKept  = time.Hour        // if it is not started
	planSweep = 100              // of those that are kept no longer, in one go

	defaultRate   = 100
	mostRate      = 100_000
	defaultCanary = 10
	mostCanary    = 500
)

// StartOptions are how an operation is carried out.
type StartOptions struct {
	// Rate is how many messages change in a second: 1 to 100,000. Defaults to 100.
	Rate int
	// Canary is how many messages go first when messages are requeued: 1 to 500. Where more than a
	// tenth of them fails again, the operation pauses. Defaults to 10; negative values mean none.
	Canary int
	// Reason says why, in the audit. It is required.
	Reason string
}

func (t StartOptions) check(a Action) (StartOptions, error) {
	if t.Rate == 0 {
		t.Rate = defaultRate
	}
	if t.Canary == 0 {
		t.Canary = defaultCanary
	}
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

// Plan says what an action would do to all that its target matches now, and changes nothing: see [Preview]. The
// actions are [Requeue] and [Discard] of poisoned messages, [Cancel], [Reschedule] and [RunNow] of
// pending ones, and [RetryParked], [Rebuild] and [Promote] of a projection. What comes later, or comes to match
// later, is not part of it, and nothing of a consumer that the preview does not name is changed. It can be started
// for 10 minutes, by the same principal, and is forgotten after an hour. Two plan at once, for 10 s at most: others
// wait as long, and then the error is [ErrBusy].
func (s *Session) Plan(ctx context.Context, a Action, target Target) (Operation, error) {
	preview, err := s.preview(ctx, a, &target)
	if err != nil {
		return Operation{}, fmt.Errorf("ops: plan %s: %w", a, err)
	}
	d := s.service
	if err := d.store.ForgetPlans(ctx, d.config.DB, string(Planned), planKept, planSweep); err != nil {
		return Operation{}, fmt.Errorf("ops: plan %s: forget old plans: %w", a, err)
	}
	row := store.Operation{
		Kind: string(a), Actor: s.who.Name, Target: asJSON(pinnedTarget{target, preview.ids}), Preview: asJSON(preview),
		State: string(Planned), Rate: defaultRate, UpToID: preview.UpTo,
	}
	id, err := d.store.AddOperation(ctx, d.config.DB, row, false)
	if err != nil {
		return Operation{}, fmt.Errorf("ops: plan %s: %w", a, err)
	}
	o, err := d.operationIn(ctx, d.config.DB, id)
	if err != nil {
		return Operation{}, fmt.Errorf("ops: plan %s: %w", a, err)
	}
	return s.operation(ctx, o), nil
}

// Preview is [Session.Plan] that keeps no plan: it writes nothing.
func (s *Session) Preview(ctx context.Context, a Action, target Target) (Preview, error) {
	preview, err := s.preview(ctx, a, &target)
	if err != nil {
		return Preview{}, fmt.Errorf("ops: preview %s: %w", a, err)
	}
	return preview, nil
}

// preview pins the target to what there is now.
func (s *Session) preview(ctx context.Context, a Action, target *Target) (p Preview, err error) {
	if err := s.may(a, target.consumer()); err != nil {
		return Preview{}, err
	}
	kind, ok := kinds()[a]
	if !ok {
		return Preview{}, fmt.Errorf("%w: %q: use one of requeue, discard, cancel, reschedule, run_now, retry_parked, rebuild, promote", bus.ErrInvalidOption, string(a))
	}
	if err := kind.check(*target); err != nil {
		return Preview{}, err
	}
	if target.Poisoned != nil {
		if err := s.maySearch(ctx, textOf(*target.Poisoned)); err != nil {
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
	p.Duplicate, err = s.already(ctx, Operation{Action: a, Target: *target, Preview: &p})
	return p, err
}

// already is the operation that does the same, if one is under way or another principal has planned
// one.
func (s *Session) already(ctx context.Context, o Operation) (int64, error) {
	rows, err := briefly(ctx, s.service, s.service.config.DB, lookTime, func(ctx context.Context, db bun.IDB) ([]store.Operation, error) {
		return s.service.store.Operations(ctx, db, store.OperationFilter{States: names(Planned, Waiting, Canary, Running, Paused), Kinds: []string{string(o.Action)}}, mostOpen)
	})
	planned := int64(0)
	for _, row := range rows {
		switch other := newOperation(row); {
		case !other.sameAs(o):
		case other.underWay():
			return other.ID, nil
		case !other.CreatedBy(s.who) && row.Now.Sub(other.CreatedAt) < planTime:
			planned = other.ID
		}
	}
	return planned, err
}

// mostOpen is how many operations that are not over are looked at.
const mostOpen = 1000

func names(states ...OperationState) []string {
	return store.Each(states, func(s OperationState) string { return string(s) })
}
