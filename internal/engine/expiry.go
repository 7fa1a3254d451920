package engine

import (
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
)

// expired returns the outcome error of an expired message, else nil.
func (e *executor) expired(m *bus.Message) error {
	by, late, ok := flow.Deadline(m.Headers)
	if !ok {
		return nil
	}
	now := e.pollState.clock(time.Now())
	if !now.After(by) {
		return nil
	}
	err := fmt.Errorf("%w: the deadline %s passed %s ago", bus.ErrExpired, by.Format(time.RFC3339Nano), flow.Rounded(now.Sub(by)))
	if late == bus.Poisoned.String() {
		return &bus.OutcomeError{Outcome: bus.Condemned, Reason: flow.DeadlinePassed, Err: err}
	}
	return bus.Discard(err)
}

// untilDeadline returns how long after it was queued a message may start.
func (t *task) untilDeadline() time.Duration {
	by, _, ok := flow.Deadline(t.message.Headers)
	if !ok {
		return flow.Never
	}
	return max(by.Sub(t.queuedAt)-t.lease.ahead, 0)
}
