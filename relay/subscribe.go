package relay

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

// errSubscriberHangs is returned for a subscriber that does not return.
var errSubscriberHangs = errors.New("relay: the subscriber has not returned, although its context has ended")

// subscribe runs until the subscription ends or is paused. Then it releases the lease. worked
// reports whether any batch was accepted.
func (r *Runner) subscribe(ctx context.Context, rc *receiving) (worked bool, err error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if rc.alone() {
		var keeper sync.WaitGroup
		keeper.Go(func() { r.keepTurn(ctx, rc, end) })
		defer func() {
			end(nil)
			keeper.Wait()
			r.endTurn(ctx, rc)
		}()
	}
	s := &subscription{Runner: r, rc: rc, ctx: ctx, end: end}
	err = s.run()
	if _, pauses := errors.AsType[*pausedError](context.Cause(ctx)); pauses && err != errSubscriberHangs {
		err = context.Cause(ctx)
	}
	return s.took.Load(), err
}

// subscription is one call of a subscriber, which may call take concurrently.
type subscription struct {
	*Runner
	rc     *receiving
	ctx    context.Context
	end    context.CancelCauseFunc
	took   atomic.Bool
	inHand atomic.Int32 // batches being accepted
}

// take accepts a batch, unless the subscription has ended: an abandoned subscriber may still call
// it.
func (s *subscription) take(ctx context.Context, records []broker.Record) error {
	s.inHand.Add(1)
	defer s.inHand.Add(-1)
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	err := s.receive(ctx, s.rc, records)
	if err != nil {
		s.end(&pausedError{err})
	} else {
		s.took.Store(true)
	}
	return err
}

// run calls the subscriber and abandons it if it does not return after its context has ended.
func (s *subscription) run() error {
	var calls isolate.Runner[call]
	result := calls.Begin(func() error { return s.rc.sub.Subscribe(s.ctx, s.take) })
	returned := func(err error) error {
		calls.Dismiss()
		return asError("the subscriber", err)
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
		if s.inHand.Load() > 0 { // these end by themselves
			patience.Reset(subscribeGrace)
			continue
		}
		gone := make(chan struct{})
		calls.Abandon(func() { close(gone) })
		s.rc.runs.hangs(gone)
		s.config.Logger.Error("subscriber does not return, and was given up", "receiver", s.rc.name)
		return errSubscriberHangs
	}
}

// hangs records an abandoned subscriber. returned is closed once it returns.
func (s *running) hangs(returned <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returned, s.sum.Paused = returned, errSubscriberHangs.Error()
}

// awaitReturn waits for an abandoned subscriber, because only one goroutine may use it. It returns
// false when ctx has ended.
func (r *Runner) awaitReturn(ctx context.Context, rc *receiving) bool {
	rc.runs.mu.Lock()
	returned := rc.runs.returned
	rc.runs.mu.Unlock()
	if returned == nil {
		return ctx.Err() == nil
	}
	rc.runs.hangs(returned)
	select {
	case <-ctx.Done():
		return false
	case <-returned:
	}
	rc.runs.mu.Lock()
	defer rc.runs.mu.Unlock()
	rc.runs.returned, rc.runs.sum.Paused = nil, ""
	return true
}
