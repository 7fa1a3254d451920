package outbox

import (
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// DeliverBy gives the message a deadline: none of its runs starts after t, on the database's clock.
// A message that would start after t gets the outcome late: bus.Discarded or bus.Poisoned. Its
// consumer is not called then, and the error is bus.ErrExpired.
//
// The deadline is looked at when a run is to start, and so a message of a paused consumer
// stays until it is claimed. To requeue a poisoned message lifts it. The deadline travels in
// the header "asyncmonolith-deliver-by". A processor of a version without DeliverBy ignores it.
//
// t must lie in one of the years 1 to 9999 in UTC, and not before [AvailableAt], nor, on the
// clock of this process, before the end of [Delay].
func DeliverBy(t time.Time, late bus.Outcome) Option {
	return func(m *bus.Message) error {
		if late != bus.Discarded && late != bus.Poisoned {
			return fmt.Errorf("%w: late messages %s: discarded or poisoned is allowed", bus.ErrInvalidOption, late)
		}
		if year := t.UTC().Year(); t.IsZero() || year < 1 || year > 9999 {
			return fmt.Errorf("%w: deliver by year %d in UTC, 1 to 9999 are allowed", bus.ErrInvalidOption, year)
		}
		return Header(store.DeliverByHeader, t.UTC().Format(time.RFC3339Nano)+" "+late.String())(m)
	}
}

// checkDeadline refuses one that cannot be kept. What is debounced may be due before its delay
// is over; a zero now stands for a time that is not known yet.
func checkDeadline(m *bus.Message, now time.Time) error {
	by, _, ok := flow.Deadline(m.Headers)
	at := m.AvailableAt
	if m.Delay > 0 && m.DebounceMax == 0 {
		at = now.Add(m.Delay)
	}
	if !ok || !at.After(by) {
		return nil
	}
	return fmt.Errorf("payload %q: %w: available at %s, which is after it is to be delivered by, %s",
		m.PayloadType, bus.ErrInvalidOption, at.UTC().Format(time.RFC3339Nano), by.Format(time.RFC3339Nano))
}
