package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Change is one change, as the audit has it. It holds no content.
type Change struct {
	Operation int64 // its id, by which [Session.Operation] has it
	Actor     string
	Action    Action
	Reason    string
	Target    Target
	Changed   int64 // messages, where it is about these
	Rate      int   // messages per second, where it is said
}

// mostIDs is how many messages are changed at once by their ids: more are an operation.
const mostIDs = 500

// allowed is an error unless the principal may do that, and it can be done at once.
func (s *Session) allowed(ctx context.Context, c Change) error {
	err := s.may(c.Action, c.Target.consumer())
	if n := len(c.Target.IDs); err == nil && c.few() && (n < 1 || n > mostIDs) {
		err = fmt.Errorf("%d ids: %w: 1 to %d are allowed; plan an operation for more", n, bus.ErrInvalidOption, mostIDs)
	}
	if err == nil && c.few() && s.who.Allow != nil {
		err = s.allowedEach(ctx, c)
	}
	if err != nil {
		return fmt.Errorf("ops: %s: %w", c.Action, err)
	}
	return nil
}

// allowedEach is an error unless the principal may do that to the consumers of the messages that are named.
func (s *Session) allowedEach(ctx context.Context, c Change) error {
	consumersOf := s.service.store.ConsumersOf
	if c.Action == Requeue || c.Action == Discard || c.Action == Edit {
		consumersOf = s.service.store.ConsumersOfPoisoned
	}
	consumers, err := consumersOf(ctx, s.service.config.DB, c.Target.IDs)
	if err != nil {
		return err
	}
	return s.mayEach(c.Action, consumers)
}

// few reports whether it is about messages that are named by their ids.
func (c Change) few() bool {
	switch c.Action {
	case RunNow, Reschedule, Cancel, Requeue, Discard, Edit:
		return true
	default:
		return false
	}
}

// noted writes a change into the audit, and asks those who have a say.
func (s *Session) noted(ctx context.Context, db bun.IDB, c *Change, state OperationState) error {
	c.Actor = s.who.Name
	row := store.Operation{Kind: string(c.Action), Actor: c.Actor, Reason: c.Reason, Target: asJSON(c.Target), State: string(state), Changed: c.Changed, Rate: int64(c.Rate)}
	id, err := s.service.store.AddOperation(ctx, db, row, state == Done)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	c.Operation = id
	return s.audit(ctx, *c)
}

// audit asks the application's own.
func (s *Session) audit(ctx context.Context, c Change) error {
	if s.service.config.Audit == nil {
		return nil
	}
	if err := s.service.config.Audit(ctx, c); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// askTime is for how long the application's own may be asked in a transaction.
const askTime = time.Minute

// inTx runs fn in a transaction, which may stand still while Config.Audit or Principal.Allow is asked.
func (s *Session) inTx(ctx context.Context, fn func(tx bun.Tx) error) error {
	if s.service.config.Audit != nil || s.who.Allow != nil {
		ctx = txn.WithIdle(ctx, askTime)
	}
	return txn.InTx(ctx, s.service.config.DB, fn)
}

// changed is for once something was changed.
func (s *Session) changed(c Change) {
	s.service.overview.change()
	s.service.config.Logger.Info("operation applied", "actor", c.Actor, "action", string(c.Action), "operation", c.Operation, "changed", c.Changed)
}

// change does something and writes it into the audit, in one transaction.
func (s *Session) change(ctx context.Context, c Change, fn func(ctx context.Context, tx bun.Tx) (changed int, err error)) error {
	if err := s.allowed(ctx, c); err != nil {
		return err
	}
	ctx, wakeups := txn.WithWakeups(ctx)
	err := s.inTx(ctx, func(tx bun.Tx) error {
		if err := s.service.store.WriteFirst(ctx, tx); err != nil {
			return err
		}
		changed, err := fn(ctx, tx)
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

// changeAfter is change for what cannot be part of a transaction. It is in the audit first, as [Started],
// and stays so if the process dies before it is known what became of it.
func (s *Session) changeAfter(ctx context.Context, c Change, fn func(ctx context.Context, db *bun.DB) (changed int, err error)) error {
	if err := s.allowed(ctx, c); err != nil {
		return err
	}
	db := s.service.config.DB
	if err := s.inTx(ctx, func(tx bun.Tx) error { return s.noted(ctx, tx, &c, Started) }); err != nil {
		return fmt.Errorf("ops: %s: %w", c.Action, err)
	}
	changed, err := fn(ctx, db)
	c.Changed = int64(changed)
	end := store.OperationChange{State: string(Done), Changed: c.Changed, Finished: true}
	if err != nil {
		text := "it failed" + foreign + said(err)
		end.State, end.Note = string(Stopped), &text
	}
	within, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), stepTime, errStepTime)
	defer cancel()
	if _, failed := s.service.store.ChangeOperation(within, db, store.OperationFilter{ID: c.Operation}, end); err == nil && failed != nil {
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

func asJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil { // of our own types none fails
		return []byte("null")
	}
	return text
}
