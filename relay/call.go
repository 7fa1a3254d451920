package relay

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
)

const (
	// callGrace is the extra time after an application function's timeout before the call is
	// abandoned.
	callGrace = time.Second
	// mostHanging limits abandoned calls that still run, per shard or per receiver's Map.
	mostHanging = 4
)

// call is a call of an application function on its own goroutine.
type call func() error

// Run implements isolate.Call.
func (c call) Run() error { return c() }

// guarded runs an application function and returns its panic as an error.
func guarded(what string, fn func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("relay: %s: %w", what, isolate.NewPanic(value))
		}
	}()
	return fn()
}

// asError returns a call's error or panic as an error.
func asError(what string, err error) error {
	if panicked, ok := errors.AsType[*isolate.Panicked](err); ok {
		return fmt.Errorf("relay: %s: %w", what, panicked.PanicError)
	}
	return err
}

// ask calls an application function, such as a publisher. A call that ignores its timeout is
// abandoned; its later effects count as a lost answer. At most mostHanging abandoned calls may
// run; then no more calls are made.
func ask[T any](ctx context.Context, what string, hanging *atomic.Int32, timeout time.Duration, fn func(ctx context.Context) (T, error)) (answer T, err error) {
	if hanging.Load() >= mostHanging {
		return answer, fmt.Errorf("%d calls of %s have not returned: %w", mostHanging, what, errTimeout)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()
	got := new(T) // an abandoned call may still write it
	var calls isolate.Runner[call]
	result := calls.Begin(func() (err error) {
		*got, err = fn(ctx)
		return err
	})
	patience := time.NewTimer(timeout + callGrace)
	defer patience.Stop()
	select {
	case err = <-result:
		calls.Dismiss()
		return *got, asError(what, err)
	case <-patience.C:
		hanging.Add(1)
		calls.Abandon(func() { hanging.Add(-1) })
		return answer, errTimeout
	}
}
