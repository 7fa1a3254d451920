package projection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

const (
	// abandonGrace is how long a function may run after its context ends, before it is abandoned.
	abandonGrace = 5 * time.Second
	// resetTime is how long a Reset may run, which may empty large tables.
	resetTime = 10 * time.Minute
	// maxLeft is how many abandoned functions may still run before no more batches begin.
	maxLeft = 16
)

// application is a call of a projection's function.
type application func() error

// Run implements isolate.Call.
func (a application) Run() error { return a() }

func (b *batch) deliver(ctx context.Context, m *bus.Message, consume bus.Handler) error {
	return b.around(ctx, m, func(ctx context.Context, next func(context.Context) error) error {
		return access.Deliver(ctx, b.runner.chain, m, func(ctx context.Context, _ *bus.Message) error { return next(ctx) })
	}, func(ctx context.Context) error { return consume(ctx, m) })
}

// around runs layers on their own goroutine, so that one that never returns blocks neither the
// shard nor the end of Run. What they wrap, and all use of the transaction, stays on the batch's
// goroutine.
func (b *batch) around(
	ctx context.Context, m *bus.Message, layers func(context.Context, func(context.Context) error) error, inner func(context.Context) error,
) error {
	err := isolate.Around(ctx, "", &b.runner.left, b.Timeout+abandonGrace, layers, inner)
	if errors.Is(err, isolate.ErrTimeout) {
		b.abandoned(ctx, m)
		err = fmt.Errorf("projection: a layer of RunnerConfig.Chain or Telemetry: %w: %w", bus.ErrAbandoned, err)
	}
	return err
}

// call runs a projection's function on its own goroutine. When the context ends, call waits for
// abandonGrace and then abandons the function.
func (b *batch) call(ctx context.Context, m *bus.Message, fn application) error {
	result := b.isolate.Begin(fn)
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	grace := time.NewTimer(abandonGrace)
	defer grace.Stop()
	select {
	case err := <-result:
		return err
	case <-grace.C:
	}
	left := &b.runner.left
	left.Add(1)
	b.isolate.Abandon(func() { left.Add(-1) })
	b.abandoned(ctx, m)
	return bus.ErrAbandoned
}

// abandoned logs an abandoned function and ends its database session. A rollback would wait for
// its statement and keep the shard locked.
func (b *batch) abandoned(ctx context.Context, m *bus.Message) {
	b.runner.config.Logger.ErrorContext(ctx, "projection ignored its timeout and was abandoned", "projection", b.Name, "version", b.Version,
		"shard", b.number, "stream", m.Event.Stream, "event_version", m.Event.Version, "position", m.Event.Position, "timeout", b.Timeout)
	if err := interrupt(ctx, b.runner.store, b.runner.db, b.sub.Session); err != nil {
		b.runner.outage.Failed("interrupt", err)
	}
}

// interrupt ends the database session of an abandoned function.
func interrupt(ctx context.Context, s *store.Store, db *bun.DB, session store.Session) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	return s.Claims.Interrupt(ctx, db, session, time.Now())
}

var errResetTime = fmt.Errorf("reset took longer than %s", resetTime) // immutable

// resetIn calls a projection's Reset in a transaction, which may be idle for its Timeout and some seconds.
func resetIn(ctx context.Context, s *store.Store, db *bun.DB, tx bun.Tx, p Projection) error {
	session, err := s.Readers.Session(ctx, tx, p.Timeout+abandonGrace+statementTimeout)
	if err != nil {
		return err
	}
	err = reset(txn.Within(ctx), p.Reset, tx, func() error { return interrupt(ctx, s, db, session) })
	if err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	return nil
}

// reset calls a projection's Reset on its own goroutine, for at most resetTime. It returns a panic as
// an error. It abandons a call that does not end with its context, and calls interrupt, without which a
// rollback would wait for the statement of that call.
func reset(ctx context.Context, fn func(context.Context, bun.Tx) error, tx bun.Tx, interrupt func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, resetTime, errResetTime)
	defer cancel()
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
		if err != nil && context.Cause(ctx) == errResetTime {
			err = fmt.Errorf("%w: %w", errResetTime, err)
		}
		return err
	case <-late.Done():
		alone.Abandon(func() {})
		return errors.Join(fmt.Errorf("%w: %w", bus.ErrAbandoned, context.Cause(ctx)), interrupt())
	}
}
