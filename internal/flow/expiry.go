package flow

import (
	"fmt"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// DeadlinePassed is why an expired message was poisoned.
const DeadlinePassed = "deadline passed"

// Deadline reads the header of outbox.DeliverBy: by when a run may start, and what happens to the
// message after that. It returns false if there is none, or if it was edited and cannot be read.
func Deadline(headers map[string]string) (by time.Time, late string, ok bool) {
	text, ok := headers[store.DeliverByHeader]
	if !ok {
		return by, "", false
	}
	at, late, _ := strings.Cut(text, " ")
	by, err := time.Parse(time.RFC3339Nano, at)
	return by, late, err == nil
}

// CheckDeadline refuses a deadline before the message is due. A debounced message may be due before
// its delay is over. A zero now means that the time is not known yet.
func CheckDeadline(m *bus.Message, now time.Time) error {
	by, _, ok := Deadline(m.Headers)
	at := m.AvailableAt
	if m.Delay > 0 && m.DebounceMax == 0 {
		at = now.Add(m.Delay)
	}
	if !ok || !at.After(by) {
		return nil
	}
	return fmt.Errorf("payload %q: %w: available at %s, after its DeliverBy %s",
		m.PayloadType, bus.ErrInvalidOption, at.UTC().Format(time.RFC3339Nano), by.Format(time.RFC3339Nano))
}
