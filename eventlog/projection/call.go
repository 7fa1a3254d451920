package projection

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
)

const (
	// abandonGrace is how long a function may go on when its context is over,
	// before it is abandoned.
	abandonGrace = 5 * time.Second
	// maxLeft is how many that were abandoned may be running before no more
	// batches are begun.
	maxLeft = 16
)

// application is a function of the projection, ready to be called.
type application func() error

// Run implements isolate.Call.
func (a application) Run() error { return a() }

// call runs a function of the projection on a goroutine of its own: one that
// never returns costs neither the shard nor the end of Run. When its context is
// over, by the timeout or by a stop, it waits a little longer and then leaves it
// behind. The chain, and all that is done with the transaction besides, stays on
// the goroutine of the batch.
func (b *batch) call(ctx context.Context, m *bus.Message, fn application) error {
	result := b.isolate.Begin(fn)
	select {
	case err := <-result:
		return passedOn(err)
	case <-ctx.Done():
	}
	grace := time.NewTimer(abandonGrace)
	defer grace.Stop()
	select {
	case err := <-result:
		return passedOn(err)
	case <-grace.C:
		return b.abandon(ctx, m)
	}
}

// passedOn has a panic go on here, so that recovering from it is a matter of the
// chain.
func passedOn(err error) error {
	if p, ok := err.(*isolate.Panicked); ok {
		panic(p.PanicError)
	}
	return err
}

// abandon leaves the function behind, and ends the session that it may be running
// a statement in: rolling back would wait for that, and the shard stay locked.
func (b *batch) abandon(ctx context.Context, m *bus.Message) error {
	left := &b.runner.left
	left.Add(1)
	b.isolate.Abandon(func() { left.Add(-1) })
	b.runner.config.Logger.ErrorContext(ctx, "projection ignored its timeout and was abandoned", "projection", b.Name, "version", b.Version,
		"shard", b.number, "stream", m.Event.Stream, "event_version", m.Event.Version, "position", m.Event.Position, "timeout", b.Timeout)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	if err := b.runner.store.Interrupt(ctx, b.runner.db, b.sub.Session, time.Now()); err != nil {
		b.runner.outage.Failed("interrupt", err)
	}
	return bus.ErrAbandoned
}

// reset calls the Reset of a projection on a goroutine of its own: a panic is an error, and what does not end with ctx is left
// behind.
func reset(ctx context.Context, fn func(context.Context, bun.Tx) error, tx bun.Tx) error {
	var alone isolate.Runner[application]
	result := alone.Begin(func() error { return fn(ctx, tx) })
	late, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(abandonGrace, stop) })()
	select {
	case err := <-result:
		alone.Dismiss()
		if p, ok := err.(*isolate.Panicked); ok {
			return p.PanicError
		}
		return err
	case <-late.Done():
		alone.Abandon(func() {})
		return fmt.Errorf("%w: %w", bus.ErrAbandoned, context.Cause(ctx))
	}
}
