package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
	"github.com/asyncmonolith/asyncmonolith-go/internal/opsaccess"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Change is one audited change. It holds no message content.
type Change struct {
	Operation int64 // id for [Operations.Get]
	Actor     string
	Action    Action
	Reason    string
	Target    Target
	Changed   int64 // number of changed messages; 0 when unknown or not about messages
	Rate      int   // messages per second, if set
}

// allowed returns an error unless the principal may make the change, and it can be made in one
// call. It returns the ids that may be changed.
func (s access) allowed(ctx context.Context, c Change) (ids []int64, err error) {
	err = s.may(c.Action, c.Target.consumer())
	if n := len(c.Target.IDs); err == nil && c.few() && (n < 1 || n > opsaccess.MostIDs) {
		err = fmt.Errorf("%d ids: %w: 1 to %d are allowed; plan an operation for more", n, bus.ErrInvalidOption, opsaccess.MostIDs)
	}
	ids = c.Target.IDs
	if err == nil && c.few() && s.who.Allow != nil {
		ids, err = s.allowedEach(ctx, c)
	}
	if err != nil {
		return nil, fmt.Errorf("ops: %s: %w", c.Action, err)
	}
	return ids, nil
}

// allowedEach returns an error unless the principal may change the consumers of the named
// messages. It returns the ids of those that exist. Allow was not asked about the others, which may
// come to exist before the change.
func (s access) allowedEach(ctx context.Context, c Change) (ids []int64, err error) {
	in := store.PendingTable
	switch c.Action {
	case Requeue, Discard, Edit:
		in = store.PoisonedTable
	case Repeat:
		in = store.ConsumedTable
	}
	found, err := s.service.store.Operations.Named(ctx, s.service.config.DB, in, c.Target.IDs)
	if err != nil {
		return nil, err
	}
	consumers := store.Each(found, func(m store.Named) string { return m.ConsumerType })
	slices.Sort(consumers)
	return store.Each(found, func(m store.Named) int64 { return m.ID }), s.mayEach(c.Action, slices.Compact(consumers))
}

// few reports whether the change names its messages by id.
func (c Change) few() bool {
	switch c.Action {
	case RunNow, Reschedule, Cancel, Requeue, Discard, Edit, Repeat:
		return true
	default:
		return false
	}
}

// noted writes a change into the audit and calls [Config].Audit.
func (s access) noted(ctx context.Context, db bun.IDB, c *Change, state OperationState) error {
	c.Actor = s.who.Name
	target, err := asJSON(c.Target)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	row := store.Operation{
		Kind: string(c.Action), Actor: c.Actor, Reason: c.Reason, Target: target, State: string(state), Changed: c.Changed,
		Rate: int64(c.Rate),
	}
	id, err := s.service.store.Operations.Add(ctx, db, row, state == Done)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	c.Operation = id
	return s.audit(ctx, *c)
}

func (s access) audit(ctx context.Context, c Change) error {
	if s.service.config.Audit == nil {
		return nil
	}
	_, err := isolate.Ask(ctx, "Config.Audit", &s.service.unanswered, askTime, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.service.config.Audit(ctx, c)
	})
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

const (
	// askTime is how long Config.Audit and Principal.Allow may take.
	askTime = 10 * time.Second
	// idleTime limits how long a transaction may be idle while it calls them.
	idleTime = time.Minute
)

// inTx runs fn in a transaction. The transaction may be idle while Config.Audit or Principal.Allow
// runs.
func (s access) inTx(ctx context.Context, fn func(tx bun.Tx) error) error {
	if s.service.config.Audit != nil || s.who.Allow != nil {
		ctx = txn.WithIdle(ctx, idleTime)
	}
	return txn.InTx(ctx, s.service.config.DB, fn)
}

// changed logs a change and invalidates the overview.
func (s access) changed(c Change) {
	s.service.overview.Change()
	s.service.config.Logger.Info(
		"operation applied", "actor", c.Actor, "action", string(c.Action), "operation", c.Operation, "changed", c.Changed,
	)
}

// change makes a change and writes its audit row in one transaction. fn gets the ids of the target
// that it may change.
func (s access) change(
	ctx context.Context, c Change, fn func(ctx context.Context, tx bun.Tx, ids []int64) (changed int, err error),
) error {
	ids, err := s.allowed(ctx, c)
	if err != nil {
		return err
	}
	ctx, wakeups := txn.WithWakeups(ctx)
	err = s.inTx(ctx, func(tx bun.Tx) error {
		if err := s.service.store.WriteFirst(ctx, tx); err != nil {
			return err
		}
		changed, err := fn(ctx, tx, ids)
		if err != nil {
			return err
		}
		c.Changed = int64(changed)
		return s.noted(ctx, tx, &c, Done)
	})
	if err != nil {
		return fmt.Errorf("ops: %s: %w", c.Action, err)
	}
	wakeups.Send(s.service.config.Registry)
	s.changed(c)
	return nil
}

// changeAfter is change for work that cannot be part of one transaction. It writes the audit row
// first, as [Started]. The row stays [Started] if the process dies before the outcome is known.
func (s access) changeAfter(
	ctx context.Context, c Change, fn func(ctx context.Context, db *bun.DB, ids []int64) (changed int, err error),
) error {
	ids, err := s.allowed(ctx, c)
	if err != nil {
		return err
	}
	db := s.service.config.DB
	if err := s.inTx(ctx, func(tx bun.Tx) error { return s.noted(ctx, tx, &c, Started) }); err != nil {
		return fmt.Errorf("ops: %s: %w", c.Action, err)
	}
	changed, err := fn(ctx, db, ids)
	c.Changed = int64(changed)
	end := store.OperationChange{State: string(Done), Changed: c.Changed, Finished: true}
	if err != nil {
		text := "failed" + foreign + said(err)
		end.State, end.Note = string(Stopped), &text
	}
	within, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), stepTime, errStepTime)
	defer cancel()
	if _, failed := s.service.store.Operations.Change(within, db, store.OperationFilter{ID: c.Operation}, end); err == nil && failed != nil {
		err = fmt.Errorf("audit: %w", failed)
	}
	if err == nil || c.Changed > 0 {
		s.changed(c)
	}
	if err != nil {
		return fmt.Errorf("ops: %s: %w", c.Action, err)
	}
	return nil
}

// asJSON refuses what JSON cannot express, such as a time after the year 9999.
func asJSON(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		err = fmt.Errorf("%w: %w", bus.ErrInvalidOption, err)
	}
	return text, err
}
