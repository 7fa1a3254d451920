package middleware

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
)

// OnPoison is called with the reason and the error before a message is poisoned. It runs before
// that commits, so after a crash it may be called twice. It is called concurrently. Its context ends
// after 10 s, and a second later the call is abandoned. If it panics or is abandoned, the message is
// poisoned all the same, with that error added. While four abandoned calls run, it is not called.
type OnPoison func(ctx context.Context, m *bus.Message, reason string, err error)

// Poison poisons a message whose outcome is bus.Condemned: [Attempts] or bus.Permanent set it. It
// calls the hook, which may be nil, and the processor then moves the message. Without this layer
// such a message is retried after AttemptDelay.
func Poison(hook OnPoison) bus.Middleware {
	abandoned := new(atomic.Int32)
	return func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Message) error {
			err := next(ctx, m)
			v := bus.OutcomeOf(err)
			if v.Outcome != bus.Condemned {
				return err
			}
			cause := v.Err
			if hook != nil {
				cause = errors.Join(cause, tell(ctx, hook, abandoned, m, v))
			}
			return &bus.OutcomeError{Outcome: bus.Poisoned, Reason: v.Reason, Err: cause}
		}
	}
}

// tellTime is how long OnPoison may take. A worker waits for it.
const tellTime = 10 * time.Second

// tell returns a panic or the timeout of the hook, so that the message is still poisoned.
func tell(ctx context.Context, hook OnPoison, abandoned *atomic.Int32, m *bus.Message, v bus.OutcomeError) error {
	_, err := isolate.Ask(ctx, "hook", abandoned, tellTime, func(ctx context.Context) (struct{}, error) {
		hook(ctx, m, v.Reason, v.Err)
		return struct{}{}, nil
	})
	if err != nil {
		return fmt.Errorf("middleware: OnPoison: %w", err)
	}
	return nil
}
