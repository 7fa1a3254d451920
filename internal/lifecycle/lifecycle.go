package lifecycle

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/heartbeat"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
)

// Run is the state of a Run. It is safe for concurrent use. The zero value does not run.
type Run struct {
	running atomic.Bool
	serving atomic.Bool // Check has succeeded
}

// Serving reports whether the work has begun and is not over.
func (r *Run) Serving() bool { return r.serving.Load() }

// Config is how a Run begins.
type Config struct {
	Package      string                          // whose Run it is, for errors
	Check        func(ctx context.Context) error // whether it can begin; nil: always
	StartTimeout time.Duration                   // how long Check is repeated while the database does not answer
	Heartbeat    heartbeat.Config                // of the work
}

// Do works until ctx ends. It returns an error if Check fails, and [bus.ErrRunning] while another
// call works.
func (r *Run) Do(ctx context.Context, c Config, work func(ctx context.Context)) error {
	if !r.running.CompareAndSwap(false, true) {
		return fmt.Errorf("%s: run: %w", c.Package, bus.ErrRunning)
	}
	defer r.running.Store(false)
	var err error
	if c.Check != nil && ctx.Err() == nil {
		err = outage.Await(ctx, c.StartTimeout, c.Heartbeat.Logger, c.Check)
	}
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: run: %w", c.Package, err)
	}
	defer heartbeat.New(c.Heartbeat).Start(ctx)()
	r.serving.Store(true)
	defer r.serving.Store(false)
	work(ctx)
	return nil
}
