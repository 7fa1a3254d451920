package guide

import (
	"context"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Reminders sends mail the day after an order.
type Reminders struct {
	Mail func(ctx context.Context, order OrderPlaced) error
}

// Remind sleeps between two steps. The message is in no claim meanwhile, and any process goes on with it.
//
// snippet: sleep
func (r *Reminders) Remind(ctx context.Context, order OrderPlaced) error {
	at, err := outbox.Step(ctx, "when", func(context.Context) (time.Time, error) {
		return time.Now().Add(24 * time.Hour), nil
	})
	if err != nil {
		return err
	}
	if wait := time.Until(at); wait > 0 {
		return bus.Snooze(wait)
	}
	return r.Mail(ctx, order)
}

// end
