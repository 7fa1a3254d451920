package testapp

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Fast is a configuration that keeps tests short: nothing waits long.
func Fast() outbox.ProcessorConfig {
	return outbox.ProcessorConfig{
		AttemptDelay: time.Millisecond, PollInterval: 50 * time.Millisecond,
		DefaultTimeout: 5 * time.Second, DrainTimeout: 5 * time.Second,
	}
}

// Running is a processor that runs until it is stopped.
type Running struct {
	*outbox.Processor
	Stop context.CancelCauseFunc // tells it to stop, and does not wait
	t    *testing.T
	done chan struct{}
	err  error
}

// Start runs a processor; the test stops it at its end if it has not before.
func (a *App) Start(config outbox.ProcessorConfig) *Running {
	a.Helper()
	return a.StartWith(context.WithoutCancel(a.Context()), config)
}

// StartWith is [App.Start] with a context of the test's own.
func (a *App) StartWith(ctx context.Context, config outbox.ProcessorConfig) *Running {
	a.Helper()
	// A machine or a server may stand still for longer than a statement may take.
	config.StartTimeout = cmp.Or(config.StartTimeout, time.Minute)
	processor, err := outbox.NewProcessor(a.DB, a.Registry, config)
	if err != nil {
		a.Fatalf("processor: %v", err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	r := &Running{Processor: processor, t: a.T, Stop: stop, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		if r.err = processor.Run(ctx); ctx.Err() == nil {
			a.Errorf("run: ended by itself with %v", r.err)
		}
	}()
	a.Cleanup(func() { r.Stop(nil); <-r.done })
	return r
}

// Wait stops the processor and returns what Run returned.
func (r *Running) Wait() error {
	r.Stop(errors.New("test stops the processor"))
	<-r.done
	return r.err
}

// MustStop stops the processor, which must drain cleanly.
func (r *Running) MustStop() {
	r.t.Helper()
	if err := r.Wait(); err != nil {
		r.t.Fatalf("run: got %v, want a clean stop", err)
	}
}
