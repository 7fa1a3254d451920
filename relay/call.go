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
	// callGrace is what a function of the application has beyond its timeout before a call is given up.
	callGrace = time.Second
	// mostHanging bounds the calls of a shard, or of the Map of a receiver, that were given up and have not returned.
	mostHanging = 4
)

// call is a call of the application's, on a goroutine of its own.
type call func() error

// Run implements isolate.Call.
func (c call) Run() error { return c() }

// guarded runs something of the application, and returns its panic as an error.
func guarded(what string, fn func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("relay: %s: %w", what, isolate.NewPanic(value))
		}
	}()
	return fn()
}

// asError returns the error of a call, which a panic is, too.
func asError(what string, err error) error {
	if panicked, ok := errors.AsType[*isolate.Panicked](err); ok {
		return fmt.Errorf("relay: %s: %w", what, panicked.PanicError)
	}
	return err
}

// ask calls a function of the application, a publisher for instance. A call that ignores the end of its time is given up: what
// it still does is as if its answer had been lost. A few may go on like that, which are counted; then no more are made.
func ask[T any](ctx context.Context, what string, hanging *atomic.Int32, timeout time.Duration, fn func(ctx context.Context) (T, error)) (answer T, err error) {
	if hanging.Load() >= mostHanging {
		return answer, fmt.Errorf("%d calls of %s have not returned: %w", mostHanging, what, errTimeout)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()
	got := new(T) // which a call that was given up may still write
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
