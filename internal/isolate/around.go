package isolate

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// stopGrace is how long a layer may still take once its context has ended.
const stopGrace = 5 * time.Second

// Around runs a layer of the application on its own goroutine, and inner, which the layer wraps, on
// the caller's. Only the layer's own time is limited: before inner, and after it. A layer that takes
// longer is abandoned and can no longer call inner. abandoned counts such layers while they run.
func Around(
	ctx context.Context, what string, abandoned *atomic.Int32, timeout time.Duration,
	layer func(ctx context.Context, next func(context.Context) error) error, inner func(context.Context) error,
) error {
	asked, answers, gone := make(chan context.Context), make(chan error, 1), make(chan struct{})
	defer close(gone)
	var calls Runner[Func]
	result := calls.Begin(func() error {
		return layer(ctx, func(ctx context.Context) error {
			select {
			case asked <- ctx:
			case <-gone:
				return ErrTimeout
			}
			err := <-answers
			if p, ok := err.(*Panicked); ok {
				panic(p.PanicError) // a layer may recover it
			}
			return err
		})
	})
	patience := time.NewTimer(timeout)
	defer patience.Stop()
	for ended := ctx.Done(); ; {
		select {
		case err := <-result:
			calls.Dismiss()
			return AsError(what, err)
		case ctx := <-asked:
			answers <- inner(ctx)
			patience.Reset(timeout)
		case <-ended:
			ended, timeout = nil, min(timeout, stopGrace)
			patience.Reset(timeout)
		case <-patience.C:
			abandoned.Add(1)
			calls.Abandon(func() { abandoned.Add(-1) })
			return fmt.Errorf("%s: %w", what, ErrTimeout)
		}
	}
}
