package ops

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Undo cancels an operation that is [Planned] or [Waiting]. In any other state the error is
// [ErrInvalidState], for an unknown id [ErrNotFound], and without permission [ErrForbidden]. After
// it returns, the operation never runs. The reason may be empty and is written to the audit.
func (s *Operations) Undo(ctx context.Context, reason string, id int64) (Operation, error) {
	d := decision{action: UndoOperation, reason: reason, from: []OperationState{Planned, Waiting}}
	d.how = func(o Operation, _ store.Operation) (store.OperationChange, error) {
		note := o.noted("undone by "+s.who.Name, reason)
		return store.OperationChange{State: string(Undone), Note: &note, Finished: true, Free: true}, nil
	}
	return s.decide(ctx, id, d)
}

// Stop ends an operation before it is done. It waits for the current step; after it returns,
// nothing more changes. Changes already made stay. A projection operation that a process is
// applying cannot be stopped: Stop then returns [ErrInvalidState], as for a finished operation. For
// an unknown id the error is [ErrNotFound], and without permission [ErrForbidden]. The reason may
// be empty and is written to the audit.
//
// Stop also closes a change that is still [Started] after 10 minutes, because its process probably
// died. This does not interrupt the change: if its process is alive, it still writes the outcome.
func (s *Operations) Stop(ctx context.Context, reason string, id int64) (Operation, error) {
	d := decision{action: StopOperation, reason: reason, from: []OperationState{Planned, Waiting, Canary, Running, Paused, Started}}
	d.how = func(o Operation, row store.Operation) (c store.OperationChange, err error) {
		if o.State == Started && row.Now.Sub(o.CreatedAt) <= changeForgotten {
			return c, fmt.Errorf("%w: started less than %s ago and may still be in progress", ErrInvalidState, changeForgotten)
		}
		if kinds()[o.Action].apply != nil && o.State == Running && row.LeasedUntil.After(row.Now.Time) {
			return c, fmt.Errorf("%w: %q is in progress and cannot be interrupted", ErrInvalidState, string(o.Action))
		}
		note := o.noted("stopped by "+s.who.Name, reason)
		return store.OperationChange{State: string(Stopped), Note: &note, Finished: true, Free: true}, nil
	}
	return s.decide(ctx, id, d)
}

// Resume resumes an operation that paused itself. For a [Requeue], canary messages go first, as with
// [StartOptions]: 0 to 500, where 0 means none. Otherwise canary must be 0. In any other state the
// error is [ErrInvalidState], for an unknown id [ErrNotFound], and without permission [ErrForbidden].
// It also needs the role of the operation's own action. The reason may be empty and is written to the
// audit.
func (s *Operations) Resume(ctx context.Context, reason string, id int64, canary int) (Operation, error) {
	d := decision{action: ResumeOperation, reason: reason, as: true, from: []OperationState{Paused}}
	d.how = func(o Operation, _ store.Operation) (store.OperationChange, error) {
		first, note, state := int64(canary), o.noted("resumed by "+s.who.Name, reason), Running
		switch {
		case canary < 0 || canary > mostCanary:
			return store.OperationChange{}, fmt.Errorf("%w: canary %d: 0 to %d are allowed", bus.ErrInvalidOption, canary, mostCanary)
		case canary > 0 && o.Action != Requeue:
			return store.OperationChange{}, fmt.Errorf("%w: canary %d: only a requeue has canaries", bus.ErrInvalidOption, canary)
		case canary > 0:
			state = Canary
		}
		return store.OperationChange{State: string(state), Canary: &first, Canaries: []byte("{}"), Note: &note}, nil
	}
	return s.decide(ctx, id, d)
}

// noted prepends a note and keeps the previous one. The new note comes first because the rest may
// be an error text, which not every principal may read.
func (o Operation) noted(note, reason string) string {
	if reason != "" {
		note += ": " + errorlog.Clean(reason, mostNoted)
	}
	if o.Note == "" {
		return note
	}
	return note + "; before that: " + o.Note
}

// mostNoted limits a reason's bytes in a note, to leave room for the previous note. The audit has
// all.
const mostNoted = 500

// SetRate changes an operation's messages per second: 1 to 100,000. Any other rate is
// bus.ErrInvalidOption. For a planned or finished operation the error is [ErrInvalidState], for an
// unknown id [ErrNotFound], and without permission [ErrForbidden]. It also needs the role of the
// operation's own action. The reason may be empty and is written to the audit.
func (s *Operations) SetRate(ctx context.Context, reason string, id int64, rate int) (Operation, error) {
	d := decision{action: SetOperationRate, reason: reason, as: true, from: []OperationState{Waiting, Canary, Running, Paused}}
	d.how = func(Operation, store.Operation) (store.OperationChange, error) {
		if rate < 1 || rate > mostRate {
			return store.OperationChange{}, fmt.Errorf("%w: rate %d: 1 to %d are allowed", bus.ErrInvalidOption, rate, mostRate)
		}
		return store.OperationChange{Rate: int64(rate)}, nil
	}
	return s.decide(ctx, id, d)
}

type decision struct {
	action Action
	reason string
	as     bool             // it also needs the role of the operation's action
	from   []OperationState // allowed states
	how    func(o Operation, row store.Operation) (store.OperationChange, error)
}

// decide changes an operation and writes the audit row, in one transaction.
func (s *Operations) decide(ctx context.Context, id int64, d decision) (Operation, error) {
	after, err := s.changeOne(ctx, func(tx bun.Tx) (Operation, error) { return s.decideIn(ctx, tx, id, d) })
	if err != nil {
		return s.operation(ctx, after), fmt.Errorf("ops: %s %d: %w", d.action, id, err)
	}
	s.service.config.Logger.Info(
		"operation decided", "actor", s.who.Name, "decision", string(d.action), "operation", id, "action",
		string(after.Action), "state", string(after.State),
	)
	return s.operation(ctx, after), nil
}

// changeOne changes an operation in a transaction and has the runner look at it. After an error it
// returns the operation as it is.
func (s *Operations) changeOne(ctx context.Context, change func(tx bun.Tx) (Operation, error)) (after Operation, err error) {
	if err = s.may(View, ""); err == nil { // before revealing whether it exists
		err = s.inTx(ctx, func(tx bun.Tx) (err error) {
			after, err = change(tx)
			return err
		})
	}
	if err == nil {
		s.service.wake()
	}
	return after, err
}

// decideIn is decide in a transaction. In a wrong state it returns the operation unchanged.
func (s *Operations) decideIn(ctx context.Context, tx bun.Tx, id int64, d decision) (Operation, error) {
	row, found, err := s.service.store.Operations.Lock(ctx, tx, id)
	if err == nil && !found {
		err = ErrNotFound
	}
	if err != nil {
		return Operation{}, err
	}
	o := newOperation(row)
	if err := s.mayEach(d.action, o.consumers()); err != nil {
		return Operation{}, err
	}
	if d.as {
		if err := s.mayEach(o.Action, o.consumers()); err != nil {
			return Operation{}, err
		}
	}
	if !slices.Contains(d.from, o.State) {
		return o, fmt.Errorf("%w: state %s", ErrInvalidState, o.State)
	}
	change, err := d.how(o, row)
	if err != nil {
		return o, err
	}
	if _, err := s.service.store.Operations.Change(ctx, tx, store.OperationFilter{ID: id}, change); err != nil {
		return o, err
	}
	target := o.Target
	target.Operation = id
	if err := s.noted(ctx, tx, &Change{Action: d.action, Reason: d.reason, Target: target, Rate: int(change.Rate)}, Done); err != nil {
		return o, err
	}
	return s.service.operationIn(ctx, tx, id)
}

// Start starts a planned operation. A [Runner] in any process carries it out once
// [Config].UndoWindow has passed. Only the principal that planned it can start it, within 10
// minutes; otherwise the error is [ErrForbidden] or [ErrExpired]. If the operation, or one with
// the same target, is already in progress, Start returns that one with [ErrInProgress] and
// discards the plan.
func (s *Operations) Start(ctx context.Context, id int64, options StartOptions) (after Operation, err error) {
	after, err = s.changeOne(ctx, func(tx bun.Tx) (Operation, error) { return s.start(ctx, tx, id, options) })
	if errors.Is(err, ErrInProgress) && after.ID != id {
		_ = s.service.store.Operations.ForgetPlan(ctx, s.service.config.DB, id, string(Planned)) // otherwise it expires in an hour
	}
	if err != nil {
		return s.operation(ctx, after), fmt.Errorf("ops: start operation %d: %w", id, err)
	}
	s.service.config.Logger.Info(
		"operation started", "actor", s.who.Name, "operation", id, "action", string(after.Action), "rate", after.Rate,
	)
	return s.operation(ctx, after), nil
}

func (s *Operations) start(ctx context.Context, tx bun.Tx, id int64, options StartOptions) (Operation, error) {
	row, err := s.service.lockPlans(ctx, tx, id)
	if err != nil {
		return Operation{}, err
	}
	o := newOperation(row)
	if err := s.mayEach(o.Action, o.consumers()); err != nil {
		return Operation{}, err
	}
	options, wrong := options.check(o.Action)
	switch {
	case wrong != nil:
		return o, wrong
	case !o.createdBy(s.who):
		return o, fmt.Errorf("%w: %q made the plan", ErrForbidden, o.Actor)
	case o.underWay():
		return o, fmt.Errorf("%w: state %s", ErrInProgress, o.State)
	case o.State != Planned:
		return o, fmt.Errorf("%w: state %s", ErrInvalidState, o.State)
	case row.Now.Sub(o.CreatedAt) > planTime:
		return o, fmt.Errorf(
			"%w: made %s ago, valid for %s: plan the operation again", ErrExpired,
			row.Now.Sub(o.CreatedAt).Round(time.Second), planTime,
		)
	}
	open, err := s.service.same(ctx, tx, o, Waiting, Canary, Running, Paused)
	if err != nil {
		return o, err
	}
	if len(open) > 0 {
		return open[0], fmt.Errorf("%w: operation %d of %q", ErrInProgress, open[0].ID, open[0].Actor)
	}
	canary := int64(options.Canary)
	change := store.OperationChange{
		State: string(Waiting), Reason: options.Reason, Rate: int64(options.Rate), Canary: &canary,
		StartsIn: max(s.service.config.UndoWindow, time.Microsecond),
	}
	if _, err := s.service.store.Operations.Change(ctx, tx, store.OperationFilter{ID: id}, change); err != nil {
		return o, err
	}
	if err := s.audit(ctx, Change{Operation: id, Actor: s.who.Name, Action: o.Action, Reason: cmp.Or(options.Reason, o.Reason),
		Target: o.Target, Rate: options.Rate}); err != nil {
		return o, err
	}
	return s.service.operationIn(ctx, tx, id)
}

// createdBy reports whether the principal planned or made the operation. The audit holds the first
// 255 bytes of a name.
func (o Operation) createdBy(principal Principal) bool {
	return o.Actor == errorlog.Clean(principal.Name, store.MaxActor)
}

// underWay reports whether the operation is started and not finished.
func (o Operation) underWay() bool {
	return slices.Contains([]OperationState{Waiting, Canary, Running, Paused}, o.State)
}

// sameAs reports whether two operations have the same action and requested target.
func (o Operation) sameAs(other Operation) bool {
	target, _ := asJSON(o.Target) // a target that JSON refuses is not planned
	others, _ := asJSON(other.Target)
	return o.Action == other.Action && bytes.Equal(target, others)
}

// overlaps reports whether both change poisoned messages, or both pending ones, of one consumer.
func (o Operation) overlaps(other Operation) bool {
	poisoned := o.Target.Poisoned != nil && other.Target.Poisoned != nil
	pending := o.Target.Pending != nil && other.Target.Pending != nil
	return (poisoned || pending) &&
		slices.ContainsFunc(o.consumers(), func(name string) bool { return slices.Contains(other.consumers(), name) })
}

// consumers are those that the operation affects, as far as the plan found.
func (o Operation) consumers() []string {
	if of := o.Target.consumer(); of != "" {
		return []string{of}
	}
	if o.Preview == nil {
		return nil
	}
	return o.Preview.Consumers
}
