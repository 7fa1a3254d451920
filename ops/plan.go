package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

const (
	planTime = 10 * time.Minute // for which a plan can be started

	defaultRate   = 100
	mostRate      = 100_000
	defaultCanary = 10
	mostCanary    = 500
)

// Terms are how an operation is carried out.
type Terms struct {
	// Rate is how many messages change in a second: 1 to 100,000. Defaults to 100.
	Rate int
	// Canary is how many messages go first when messages are requeued: 1 to 500. Where more than a
	// tenth of them fails again, the operation pauses. Defaults to 10; negative values mean none.
	Canary int
	// Reason says why, in the audit. It is required.
	Reason string
}

func (t Terms) check(a Action) (Terms, error) {
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
		errs = append(errs, fmt.Errorf("%w: rate %d: 1 to %d are allowed", bus.ErrBadOption, t.Rate, mostRate))
	}
	if t.Canary > mostCanary {
		errs = append(errs, fmt.Errorf("%w: canary %d: at most %d are allowed", bus.ErrBadOption, t.Canary, mostCanary))
	}
	if t.Reason == "" {
		errs = append(errs, fmt.Errorf("%w: the reason is empty", bus.ErrBadOption))
	}
	return t, errors.Join(errs...)
}

// Plan says what an action would do to all that its target matches now, and changes nothing. The
// actions are [Requeue] and [Discard] of poisoned messages, [Cancel], [Reschedule] and [RunNow] of
// pending ones, and [RetryParked], [Rebuild] and [Promote] of a projection. What comes later is not part
// of it. It can be started for 10 minutes, by the same principal.
func (s *Seat) Plan(ctx context.Context, a Action, target Target) (Operation, error) {
	preview, err := s.preview(ctx, a, &target)
	if err != nil {
		return Operation{}, fmt.Errorf("ops: plan %s: %w", a, err)
	}
	row := store.Operation{Kind: string(a), Actor: s.who.Name, Target: asJSON(target), Preview: asJSON(preview), State: string(Planned), Rate: defaultRate, UpToID: preview.UpTo}
	id, err := s.desk.store.AddOperation(ctx, s.desk.config.DB, row, false)
	if err != nil {
		return Operation{}, fmt.Errorf("ops: plan %s: %w", a, err)
	}
	return s.desk.operation(ctx, id)
}

// Preview is [Seat.Plan] that keeps no plan: it writes nothing.
func (s *Seat) Preview(ctx context.Context, a Action, target Target) (Preview, error) {
	preview, err := s.preview(ctx, a, &target)
	if err != nil {
		return Preview{}, fmt.Errorf("ops: preview %s: %w", a, err)
	}
	return preview, nil
}

// preview pins the target to what there is now.
func (s *Seat) preview(ctx context.Context, a Action, target *Target) (Preview, error) {
	if err := s.may(a, target.consumer()); err != nil {
		return Preview{}, err
	}
	kind, ok := kinds()[a]
	if !ok {
		return Preview{}, fmt.Errorf("%w: %q: use one of requeue, discard, cancel, reschedule, run now, retry parked, rebuild, promote", bus.ErrBadOption, string(a))
	}
	if err := kind.check(*target); err != nil {
		return Preview{}, err
	}
	return kind.preview(ctx, s.desk, target)
}

// Start has a planned operation carried out, once [Config].UndoWindow has passed, by a [Runner] of any
// process. It can be started once, by who planned it, within 10 minutes: else the error is [ErrState] or
// [ErrForbidden]. Where an operation with the same target is under way already, whoever has started that,
// it starts nothing, and returns that one with [ErrAlready].
func (s *Seat) Start(ctx context.Context, id int64, terms Terms) (Operation, error) {
	return s.decide(ctx, id, "start", "", []OperationState{Planned}, func(o Operation, now time.Time) (store.OperationChange, error) {
		terms, err := terms.check(o.Action)
		switch {
		case err != nil:
			return store.OperationChange{}, err
		case o.Actor != s.who.Name:
			return store.OperationChange{}, fmt.Errorf("%w: it is the plan of %q", ErrForbidden, o.Actor)
		case now.Sub(o.CreatedAt) > planTime:
			return store.OperationChange{}, fmt.Errorf("%w: it was planned %s ago, and can be started for %s: plan it again", ErrState, now.Sub(o.CreatedAt).Round(time.Second), planTime)
		}
		canary := int64(terms.Canary)
		return store.OperationChange{State: string(Waiting), Reason: terms.Reason, Rate: int64(terms.Rate), Canary: &canary, StartsIn: max(s.desk.config.UndoWindow, time.Microsecond)}, nil
	})
}

// Undo takes back an operation that has changed nothing yet. Afterwards nothing of it ever happens.
func (s *Seat) Undo(ctx context.Context, id int64) (Operation, error) {
	return s.decide(ctx, id, "undo", StopOperation, []OperationState{Planned, Waiting}, func(Operation, time.Time) (store.OperationChange, error) {
		note := fmt.Sprintf("undone by %s", s.who.Name)
		return store.OperationChange{State: string(Undone), Note: &note, Finished: true, Free: true}, nil
	})
}

// Stop ends an operation where it is. What it has changed stays changed.
func (s *Seat) Stop(ctx context.Context, id int64) (Operation, error) {
	return s.decide(ctx, id, "stop", StopOperation, []OperationState{Planned, Waiting, Trying, Running, Paused}, func(Operation, time.Time) (store.OperationChange, error) {
		note := fmt.Sprintf("stopped by %s", s.who.Name)
		return store.OperationChange{State: string(Stopped), Note: &note, Finished: true, Free: true}, nil
	})
}

// Continue has an operation that has paused itself go on, without canaries.
func (s *Seat) Continue(ctx context.Context, id int64) (Operation, error) {
	return s.decide(ctx, id, "continue", "", []OperationState{Paused}, func(Operation, time.Time) (store.OperationChange, error) {
		none, note := int64(0), fmt.Sprintf("continued by %s", s.who.Name)
		return store.OperationChange{State: string(Running), Canary: &none, Canaries: asJSON(trial{}), Note: &note}, nil
	})
}

// SetRate changes how many messages of an operation change in a second: 1 to 100,000.
func (s *Seat) SetRate(ctx context.Context, id int64, rate int) (Operation, error) {
	return s.decide(ctx, id, "set rate", "", []OperationState{Waiting, Trying, Running, Paused}, func(Operation, time.Time) (store.OperationChange, error) {
		if rate < 1 || rate > mostRate {
			return store.OperationChange{}, fmt.Errorf("%w: rate %d: 1 to %d are allowed", bus.ErrBadOption, rate, mostRate)
		}
		return store.OperationChange{Rate: int64(rate)}, nil
	})
}

// decide changes an operation that is in one of some states, as somebody who may do that, or if it is
// empty, what the operation does.
func (s *Seat) decide(ctx context.Context, id int64, what string, a Action, from []OperationState, how func(Operation, time.Time) (store.OperationChange, error)) (after Operation, err error) {
	if err = s.may(View, ""); err == nil { // before it tells whether there is one
		err = txn.InTx(ctx, s.desk.config.DB, func(tx bun.Tx) (err error) {
			after, err = s.decideIn(ctx, tx, id, a, from, how)
			return err
		})
	}
	if err != nil {
		return after, fmt.Errorf("ops: %s operation %d: %w", what, id, err)
	}
	s.desk.config.Logger.Info("an operation was decided on", "actor", s.who.Name, "decision", what, "operation", id, "action", string(after.Action), "state", string(after.State))
	s.desk.wake()
	return after, nil
}

// decideIn is decide in a transaction. Where the state is another it returns the operation as it is.
func (s *Seat) decideIn(ctx context.Context, tx bun.Tx, id int64, a Action, from []OperationState, how func(Operation, time.Time) (store.OperationChange, error)) (Operation, error) {
	var open []store.Operation
	if slices.Equal(from, []OperationState{Planned}) { // it starts: all who start one lock the same, so that no two of them start the same
		var err error
		if open, err = s.desk.store.LockOperations(ctx, tx, store.OperationFilter{States: names(Planned, Waiting, Trying, Running, Paused)}); err != nil {
			return Operation{}, err
		}
	}
	row, found, err := s.desk.store.LockOperation(ctx, tx, id)
	if err == nil && !found {
		err = ErrNotFound
	}
	if err != nil {
		return Operation{}, err
	}
	o := newOperation(row)
	a = cmp.Or(a, o.Action)
	if err := s.may(a, o.Target.consumer()); err != nil {
		return Operation{}, err
	}
	if !slices.Contains(from, o.State) {
		return o, fmt.Errorf("%w: it is %s", ErrState, o.State)
	}
	change, err := how(o, row.Now.Time)
	if err != nil {
		return o, err
	}
	if same, found := underWay(open, o); found {
		return same, fmt.Errorf("%w: operation %d of %q", ErrAlready, same.ID, same.Actor)
	}
	if _, err := s.desk.store.ChangeOperation(ctx, tx, store.OperationFilter{ID: id}, change); err != nil {
		return o, err
	}
	if err := s.audit(ctx, Change{Operation: id, Actor: s.who.Name, Action: a, Reason: cmp.Or(change.Reason, o.Reason), Target: o.Target}); err != nil {
		return o, err
	}
	return s.desk.operationIn(ctx, tx, id)
}

// underWay is the operation among locked ones that does what another is to do, if there is one.
func underWay(rows []store.Operation, o Operation) (same Operation, found bool) {
	for _, row := range rows {
		if same = newOperation(row); same.ID != o.ID && same.Action == o.Action && same.State != Planned && same.aim() == o.aim() {
			return same, true
		}
	}
	return Operation{}, false
}

// aim is the target as it was asked for, before it was pinned to what there was.
func (o Operation) aim() string {
	t := o.Target
	if t.Poisoned != nil && o.Preview != nil && o.Preview.Poisoned != nil && t.Poisoned.PoisonedBefore.Equal(o.Preview.Poisoned.At) {
		asked := *t.Poisoned
		asked.PoisonedBefore = time.Time{}
		t.Poisoned = &asked
	}
	return string(asJSON(t))
}

func names(states ...OperationState) []string {
	return store.Each(states, func(s OperationState) string { return string(s) })
}

// wake has the Runner of this desk look at once.
func (d *Desk) wake() {
	select {
	case d.started <- struct{}{}:
	default: // it is told already
	}
}
