package middleware

import (
	"context"
	"errors"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
)

// OnPoison is called with the reason and the error before a message is poisoned. It runs before
// that commits, so after a crash it may be called twice. It is called concurrently. If it panics,
// the message is poisoned all the same.
type OnPoison func(ctx context.Context, m *bus.Message, reason string, err error)

// Poison poisons a message whose outcome is bus.Condemned: [Attempts] or bus.Permanent set it. It
// calls the hook, which may be nil, and the processor then moves the message. Without this layer
// such a message is retried after AttemptDelay.
func Poison(hook OnPoison) bus.Middleware {
	return func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Message) error {
			err := next(ctx, m)
			v := bus.OutcomeOf(err)
			if v.Outcome != bus.Condemned {
				return err
			}
			cause := v.Err
			if hook != nil {
				cause = errors.Join(cause, tell(ctx, hook, m, v))
			}
			return &bus.OutcomeError{Outcome: bus.Poisoned, Reason: v.Reason, Err: cause}
		}
	}
}

// tell recovers a panic of the hook, so that the message is still poisoned.
func tell(ctx context.Context, hook OnPoison, m *bus.Message, v bus.OutcomeError) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = isolate.NewPanic(value)
		}
	}()
	hook(ctx, m, v.Reason, v.Err)
	return nil
}
