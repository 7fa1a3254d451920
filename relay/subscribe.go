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

// subscribeGrace is how long a subscriber has to return once its context has ended, beyond what takes records over.
const subscribeGrace = 10 * time.Second

// errSubscriberHangs is of a subscriber that does not return.
var errSubscriberHangs = errors.New("relay: the subscriber has not returned, although its context has ended")

// subscribe subscribes until the subscription ends, or is paused. Then it gives the turn back. worked says
// whether anything was taken over.
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

// subscription is one call of a subscriber. That may call from several goroutines.
type subscription struct {
	*Runner
	rc     *receiving
	ctx    context.Context
	end    context.CancelCauseFunc
	took   atomic.Bool
	inHand atomic.Int32 // batches that are taken over
}

// take takes a batch over, unless the subscription is over: who was given up may go on calling.
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

// run calls the subscriber, and gives it up if it does not return once its context has ended.
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
		if s.inHand.Load() > 0 { // which ends by itself
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

// hangs notes that the subscriber was given up, and what is closed once it has returned.
func (s *running) hangs(returned <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returned, s.sum.Paused = returned, errSubscriberHangs.Error()
}

// awaitReturn waits for a subscriber that was given up: one goroutine uses it at a time. It returns false when ctx has ended.
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
