package outbox

import (
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// DeliverBy gives the message a deadline: no run starts after t, on the database's clock. If a run
// would start later, the consumer is not called. The message gets the outcome that is passed as late,
// bus.Discarded or bus.Poisoned, with the error bus.ErrExpired.
//
// The deadline is checked when a run is to start, so a message of a paused consumer stays until it
// is claimed. Requeueing a poisoned message lifts the deadline. The deadline travels in the header
// "asyncmonolith-deliver-by". A processor of a version without DeliverBy ignores it.
//
// t must lie in the years 1 to 9999 in UTC, and not before [AvailableAt]. It must not lie before
// the end of [Delay] on the clock of this process.
func DeliverBy(t time.Time, late bus.Outcome) Option {
	return func(m *bus.Message) error {
		if late != bus.Discarded && late != bus.Poisoned {
			return fmt.Errorf("%w: DeliverBy with the late outcome %s: discarded or poisoned is allowed", bus.ErrInvalidOption, late)
		}
		if year := t.UTC().Year(); t.IsZero() || year < 1 || year > 9999 {
			return fmt.Errorf("%w: DeliverBy in the year %d: years 1 to 9999 in UTC are allowed", bus.ErrInvalidOption, year)
		}
		return Header(store.DeliverByHeader, t.UTC().Format(time.RFC3339Nano)+" "+late.String())(m)
	}
}
