package ops

import (
	"context"
	"errors"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Why what is applied at once ends before it is done.
var (
	errLost     = errors.New("another process carries out the operation")  // immutable
	errStopping = errors.New("the runner stops, and waited 10 s") // immutable
)

// can reports whether this process has what an operation takes: what is applied takes the projection, in the
// version that is meant, unless that is only to be read from now on. What a later version of the library has
// started may be of a kind that this one does not know.
func (r *Runner) can(row store.Operation) bool {
	a := Action(row.Kind)
	var unknown *unknownTargetError
	if _, err := targetOf(row); errors.As(err, &unknown) {
		return false // a newer version knows how it is meant
	}
	if kind, known := kinds()[a]; !known || kind.apply == nil {
		return known
	}
	if r.projections == nil {
		return false
	}
	target, err := targetOf(row)
	if a == Promote || err != nil { // the work says what is wrong with it
		return true
	}
	version, ok := r.projections.Newest(target.Projection)
	return ok && (target.Version == 0 || version == target.Version)
}

// apply does what a process with the application's code does at once. What ends before it is done is left to
// others, since to do it again does no harm.
func (w *work) apply(ctx context.Context, kind kind, row store.Operation) error {
	if ours, err := w.service.store.ChangeOperation(ctx, w.service.config.DB, w.own(), store.OperationChange{State: string(Running), Lease: lease}); err != nil || !ours {
		return err // it was undone
	}
	target, err := targetOf(row)
	if err != nil {
		return w.pause(ctx, "its target cannot be read")
	}
	within, end := context.WithCancelCause(context.WithoutCancel(ctx))
	done, kept := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(kept)
		w.keep(ctx, within, end, done)
	}()
	n, err := kind.apply(within, w.projections, target.Target)
	close(done)
	<-kept
	why := context.Cause(within)
	end(nil)
	after, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), stepTime, errStepTime)
	defer cancel()
	switch {
	case err != nil && why != nil:
		w.log.Warn("an operation was given up, and goes on elsewhere", "why", why.Error())
		return nil
	case err != nil:
		w.log.Warn("an operation failed", "error", err.Error())
		return w.pause(after, "it failed"+foreign+said(err))
	}
	w.log.Info("an operation is done", "changed", n)
	return w.change(after, store.OperationChange{State: string(Done), Changed: int64(n), Finished: true, Free: true})
}

// renew takes no longer than until the next time: it must not be what waits for a database that does not answer.
func (w *work) renew(ctx context.Context) (ours bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lease/3)
	defer cancel()
	return w.service.store.ChangeOperation(ctx, w.service.config.DB, w.own(), store.OperationChange{Lease: lease})
}

// keep renews the lease until all is done. It ends what is applied once the operation is not ours any more, and
// some time after ctx.
func (w *work) keep(ctx, within context.Context, end context.CancelCauseFunc, done <-chan struct{}) {
	ticker := time.NewTicker(lease / 3)
	defer ticker.Stop()
	stopping, renewed := ctx.Done(), time.Now()
	var late <-chan time.Time
	for {
		select {
		case <-ticker.C:
			select {
			case <-done: // while the one before was renewed, which may take as long as a tick
				return
			default:
			}
			ours, err := w.renew(within)
			switch {
			case err == nil && ours:
				renewed = time.Now()
			case err == nil, time.Since(renewed) > lease:
				end(errLost)
				return
			default:
				w.log.Warn("the lease of an operation could not be renewed", "error", err.Error())
			}
		case <-stopping:
			stopping = nil
			timer := time.NewTimer(stepTime)
			defer timer.Stop()
			late = timer.C
		case <-late:
			end(errStopping)
			return
		case <-done:
			return
		}
	}
}
