package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
)

const (
	// callGrace is what a publisher of a log relay has beyond its timeout before a call is given up.
	callGrace = time.Second
	// mostHanging bounds the calls of a shard that were given up and have not returned.
	mostHanging = 4
)

// call is a call of a broker, on a goroutine of its own.
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

// ask calls a shard's broker. A call that ignores the end of its time is given up: what it still
// does is as if its answer had been lost. A few may go on like that; then the broker is left alone.
func ask[T any](ctx context.Context, s *shard, timeout time.Duration, fn func(ctx context.Context) (T, error)) (answer T, err error) {
	if s.hanging.Load() >= mostHanging {
		return answer, fmt.Errorf("%d calls of the publisher have not returned: %w", mostHanging, errTimeout)
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
		if panicked, ok := errors.AsType[*isolate.Panicked](err); ok {
			err = fmt.Errorf("relay: the publisher: %w", panicked.PanicError)
		}
		return *got, err
	case <-patience.C:
		s.hanging.Add(1)
		calls.Abandon(func() { s.hanging.Add(-1) })
		return answer, errTimeout
	}
}
