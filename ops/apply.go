package ops

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Causes that end an apply early.
var (
	errLost     = errors.New("the operation's lease was lost")                // immutable
	errStopping = fmt.Errorf("the runner stopped after waiting %s", stopTime) // immutable
)

// begun marks the operation as running, unless ctx ends. ours is false if it is another process's.
func (w *work) begun(ctx context.Context) (ours bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, stepTime, errStepTime)
	defer cancel()
	running := store.OperationChange{State: string(Running), Lease: lease}
	return w.service.store.Operations.Change(ctx, w.service.config.DB, w.own(), running)
}

// apply carries out a running operation that needs the application's code, in one call. If it is
// interrupted, another process repeats it; repeating does no harm.
func (w *work) apply(ctx context.Context, kind kind, target pinnedTarget) error {
	within, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopTime, func() { end(errStopping) }) })()
	done, kept := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(kept)
		w.keep(within, end, done)
	}()
	n := 0
	err := isolate.Try("the projection", func() (err error) {
		n, err = kind.apply(within, w.projections, target)
		return err
	})
	close(done)
	<-kept
	why := context.Cause(within)
	end(nil)
	after, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), stepTime, errStepTime)
	defer cancel()
	abandoned := errors.Is(err, bus.ErrAbandoned)
	switch {
	case err != nil && why != nil && !(abandoned && why == errLost): // a Reset that hangs keeps SQLite's only writer, and so the lease
		w.log.Warn("operation left to another process", "why", why.Error())
		if n == 0 {
			return nil
		}
		_, err := w.service.store.Operations.Change( // it may be another process's by now
			after, w.service.config.DB, store.OperationFilter{ID: w.id}, store.OperationChange{Changed: int64(n)})
		return err
	case err != nil:
		w.log.Warn("operation failed", "error", err.Error(), "changed", n)
		note := "failed"
		if abandoned {
			note = "abandoned: a function of the projection did not return in time and may still run"
		}
		note += foreign + said(err)
		return w.change(after, store.OperationChange{State: string(Paused), Note: &note, Free: true, Changed: int64(n)})
	}
	w.log.Info("operation done", "changed", n)
	return w.change(after, store.OperationChange{State: string(Done), Changed: int64(n), Finished: true, Free: true})
}

// stopTime is how long an apply may go on after the runner was stopped. The projection's function then
// has 5 s to end before it is abandoned, so that [Runner.Run] takes stepTime.
const stopTime = stepTime / 2

// keep renews the lease until done is closed. It cancels the apply if the lease is lost.
func (w *work) keep(within context.Context, end context.CancelCauseFunc, done <-chan struct{}) {
	ticker := time.NewTicker(lease / 3)
	defer ticker.Stop()
	renewed := time.Now()
	for {
		select {
		case <-ticker.C:
			select {
			case <-done: // closed during the previous renewal, which may take a whole tick
				return
			default:
			}
			// The renewal times out before the next one, so an unresponsive database cannot block it.
			renewal, cancel := context.WithTimeout(within, lease/3)
			ours, err := w.service.store.Operations.Change(renewal, w.service.config.DB, w.own(), store.OperationChange{Lease: lease})
			cancel()
			switch {
			case err == nil && ours:
				renewed = time.Now()
			case err == nil, time.Since(renewed) > lease:
				end(errLost)
				return
			default:
				w.log.Warn("operation lease not renewed", "error", err.Error())
			}
		case <-done:
			return
		}
	}
}
