package isolate

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
)

const (
	// AskGrace is the extra time after the end of [Ask] or [Until] before the call is abandoned.
	AskGrace = time.Second
	// maxAbandoned limits abandoned calls that still run, for each counter given to [Ask].
	maxAbandoned = 4
)

// ErrTimeout is returned by [Ask] for a call that took too long. It wraps
// context.DeadlineExceeded.
var ErrTimeout = fmt.Errorf("a call took longer than its timeout: %w", context.DeadlineExceeded)

// ErrBusy is returned by [Ask] if too many abandoned calls still run. It wraps ErrTimeout.
var ErrBusy = fmt.Errorf("%d calls have not returned: %w", maxAbandoned, ErrTimeout)

// Func is a call of an application function.
type Func func() error

// Run implements Call.
func (f Func) Run() error { return f() }

// Try runs an application function and returns its panic as an error. what names the function.
// The methods of the error do not panic.
func Try(what string, fn func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("%s: %w", what, NewPanic(value))
		}
	}()
	return errorlog.Sound(fn())
}

// AsError returns the result of a call as an error, with what in front of a panic, unless it is
// empty.
func AsError(what string, err error) error {
	if panicked, ok := err.(*Panicked); ok && what == "" {
		return panicked.PanicError
	} else if ok {
		return fmt.Errorf("%s: %w", what, panicked.PanicError)
	}
	return err
}

// Ask calls an application function, such as a publisher, on its own goroutine. A call that
// ignores its timeout is abandoned; its later effects count as a lost answer. abandoned counts
// such calls while they run. If it reaches 4, no more calls are made.
func Ask[T any](
	ctx context.Context, what string, abandoned *atomic.Int32, timeout time.Duration, fn func(ctx context.Context) (T, error),
) (answer T, err error) {
	limit, over := context.WithTimeoutCause(context.WithoutCancel(ctx), timeout, ErrTimeout)
	defer over()
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, ErrTimeout)
	defer cancel()
	return Until(limit, what, abandoned, func(context.Context) (T, error) { return fn(ctx) })
}

// Until is [Ask] without a timeout: a call is abandoned if it has not returned a second after ctx
// has ended. The error is then the cause of that.
func Until[T any](
	ctx context.Context, what string, abandoned *atomic.Int32, fn func(ctx context.Context) (T, error),
) (answer T, err error) {
	if abandoned.Load() >= maxAbandoned {
		return answer, fmt.Errorf("%s: %w", what, ErrBusy)
	}
	got := new(T) // an abandoned call may still write it
	var calls Runner[Func]
	result := calls.Begin(func() (err error) {
		*got, err = fn(ctx)
		return err
	})
	returned := func(err error) (T, error) {
		calls.Dismiss()
		return *got, AsError(what, err)
	}
	select {
	case err = <-result:
		return returned(err)
	case <-ctx.Done():
	}
	patience := time.NewTimer(AskGrace)
	defer patience.Stop()
	select {
	case err = <-result:
		return returned(err)
	case <-patience.C:
		abandoned.Add(1)
		calls.Abandon(func() { abandoned.Add(-1) })
		return answer, context.Cause(ctx)
	}
}
