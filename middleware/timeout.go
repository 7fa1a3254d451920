package middleware

import (
	"context"
	"errors"
	"fmt"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Timeout gives the context a deadline, the consumer's timeout from now, with bus.ErrTimeout as its
// cause. It stops no goroutine: the processor abandons a handler that ignores its context. Without
// this layer there is no deadline.
func Timeout() bus.Middleware {
	return func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Message) error {
			if m.Config == nil || m.Config.Timeout <= 0 {
				return next(ctx, m)
			}
			ctx, cancel := context.WithTimeoutCause(ctx, m.Config.Timeout, bus.ErrTimeout)
			defer cancel()
			err := next(ctx, m)
			safe := bus.OutcomeOf(err).Err // methods of a foreign error may panic
			if errors.Is(safe, context.DeadlineExceeded) && context.Cause(ctx) == bus.ErrTimeout && !errors.Is(safe, bus.ErrTimeout) {
				return fmt.Errorf("consumer timeout %s: %w", m.Config.Timeout, err)
			}
			return err
		}
	}
}
