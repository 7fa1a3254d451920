package inbox

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
)

// subscribeGrace is how long a subscriber may take to return after its context has ended, without
// the time for accepting records.
const subscribeGrace = 10 * time.Second

// subscribe runs until the subscription ends or is paused. Then it releases the lease. worked
// reports whether any batch was accepted.
func (w *worker) subscribe(ctx context.Context) (worked bool, err error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if w.exclusive() {
		var keeper sync.WaitGroup
		keeper.Go(func() { w.lease.keep(ctx, end) })
		defer func() {
			end(nil)
			keeper.Wait()
			w.lease.release(ctx)
		}()
	}
	s := &subscription{worker: w, ctx: ctx, end: end}
	err = s.run()
	if _, pauses := errors.AsType[*pausedError](context.Cause(ctx)); pauses && err != errSubscriberHangs {
		err = context.Cause(ctx)
	}
	return s.accepted.Load(), err
}

// subscription is one call of a subscriber, which may call accept concurrently.
type subscription struct {
	worker   *worker
	ctx      context.Context
	end      context.CancelCauseFunc
	accepted atomic.Bool  // a batch
	batches  atomic.Int32 // that are being accepted
}

// accept accepts a batch, unless the subscription has ended: an abandoned subscriber may still call
// it.
func (s *subscription) accept(ctx context.Context, records []broker.Record) error {
	s.batches.Add(1)
	defer s.batches.Add(-1)
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	err := s.worker.acceptor.accept(ctx, records)
	if err != nil {
		s.end(&pausedError{err})
	} else {
		s.accepted.Store(true)
	}
	return err
}

// run calls the subscriber and abandons it if it does not return after its context has ended.
func (s *subscription) run() error {
	var calls isolate.Runner[isolate.Func]
	result := calls.Begin(func() error { return s.worker.sub.Subscribe(s.ctx, s.accept) })
	returned := func(err error) error {
		calls.Dismiss()
		return isolate.AsError("inbox: the subscriber", err)
	}
	select {
	case err := <-result:
		return returned(err)
	case <-s.ctx.Done():
	}
	patience := time.NewTimer(subscribeGrace)
	defer patience.Stop()
	for {
		select {
		case err := <-result:
			return returned(err)
		case <-patience.C:
		}
		if s.batches.Load() > 0 { // these end by themselves
			patience.Reset(subscribeGrace)
			continue
		}
		gone := make(chan struct{})
		calls.Abandon(func() { close(gone) })
		s.worker.state.hangs(gone)
		s.worker.logger.Error("subscriber abandoned", "receiver", s.worker.name)
		return errSubscriberHangs
	}
}
