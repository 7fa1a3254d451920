package middleware

import (
	"context"
	"errors"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
)

// OnPoison is called before a message is poisoned, with the reason and the error. It runs before
// the move commits, so after a crash it may be called twice.
type OnPoison func(ctx context.Context, m *bus.Message, reason string, err error)

// Poison moves a condemned message to the poisoned messages: it calls the hook, which may be nil,
// and has the processor make the move. Without this layer a condemned message is retried after
// AttemptDelay.
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

// tell keeps a panic of the hook from keeping the message alive.
func tell(ctx context.Context, hook OnPoison, m *bus.Message, v bus.OutcomeError) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = isolate.NewPanic(value)
		}
	}()
	hook(ctx, m, v.Reason, v.Err)
	return nil
}
