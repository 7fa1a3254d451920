package outbox

import (
	"fmt"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
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

// deadlinePassed is why an expired message was poisoned.
const deadlinePassed = "deadline passed"

// deadline reads what DeliverBy has written. False means that there is none, or one that was edited
// and cannot be read.
func deadline(m *bus.Message) (by time.Time, late string, ok bool) {
	text, ok := m.Headers[store.DeliverByHeader]
	if !ok {
		return by, "", false
	}
	at, late, _ := strings.Cut(text, " ")
	by, err := time.Parse(time.RFC3339Nano, at)
	return by, late, err == nil
}

// checkDeadline refuses one that cannot be kept. What is debounced may be due before its delay
// is over; a zero now stands for a time that is not known yet.
func checkDeadline(m *bus.Message, now time.Time) error {
	by, _, ok := deadline(m)
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

// tooLate is the outcome error of a message that has expired, else nil.
func (r *run) tooLate(m *bus.Message) error {
	by, late, ok := deadline(m)
	if !ok {
		return nil
	}
	now := r.dispatcher.clock(time.Now())
	if !now.After(by) {
		return nil
	}
	err := fmt.Errorf("%w: it was to start by %s, %s ago", bus.ErrExpired, by.Format(time.RFC3339Nano), rounded(now.Sub(by)))
	if late == bus.Poisoned.String() {
		return &bus.OutcomeError{Outcome: bus.Condemned, Reason: deadlinePassed, Err: err}
	}
	return bus.Discard(err)
}
