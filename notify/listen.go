package notify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
)

const (
	// checkEvery is how often a notifier checks that it receives its own notification, and
	// checkTimeout how long it waits for it.
	checkEvery   = 30 * time.Second
	checkTimeout = 5 * time.Second
	// Waits between attempts to listen, ±50 %.
	retryMin = 50 * time.Millisecond
	retryMax = 30 * time.Second
)

var (
	errNotListening = fmt.Errorf("not listening after %s", checkTimeout) // immutable
	// immutable
	errUnheard = fmt.Errorf(
		"the notifier did not receive its own notification within %s: do listener and application use the same database?", checkTimeout,
	)
	errEnded = errors.New("the listener ended by itself")                              // immutable
	errHangs = errors.New("the listener has not returned since its context has ended") // immutable
)

// listenLoop listens until ctx ends.
func (n *Notifier) listenLoop(ctx context.Context) {
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(retryMin),
		backoff.WithMaxInterval(retryMax), backoff.WithMaxElapsedTime(0))
	for {
		err := n.listen(ctx, retry.Reset)
		if ctx.Err() != nil {
			return
		}
		n.hearing.broken(err)
		if !outage.Pause(ctx, retry.NextBackOff()) {
			return
		}
	}
}

// listen listens until the connection is lost or receives nothing, and returns why. It calls
// proven whenever a check succeeds.
func (n *Notifier) listen(ctx context.Context, proven func()) error {
	if n.abandoned.Load() > 0 { // two calls are never concurrent
		return errHangs
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s := &session{Notifier: n, listening: make(chan struct{}), heard: make(chan struct{}, 1)}
	var checks sync.WaitGroup
	checks.Go(func() { cancel(s.check(ctx, proven)) })
	_, err := isolate.Until(ctx, "notify: NotifierConfig.Listener", &n.abandoned, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, n.listener.Listen(ctx, n.channel, sync.OnceFunc(func() { close(s.listening) }), s.received)
	})
	if err == nil {
		err = errEnded
	}
	cancel(err) // the cause, unless a check gave one
	checks.Wait()
	return context.Cause(ctx)
}

// session is one connection of the listener.
type session struct {
	*Notifier
	listening chan struct{}
	heard     chan struct{} // of size 1: one of our own notifications was received
}

// received passes on notifications of other processes. This process's own processors are already
// awake.
func (s *session) received(text string) {
	sender, rest, _ := strings.Cut(text, " ")
	if sender == s.id {
		select {
		case s.heard <- struct{}{}:
		default:
		}
		return
	}
	for _, topic := range strings.Fields(rest) {
		if wake, known := topics[topic]; known {
			access.Wakeups(s.registry).Send(wake)
		}
	}
}

// check periodically sends a notification to itself. It returns an error if that is not received,
// or nil when ctx ends.
func (s *session) check(ctx context.Context, proven func()) error {
	if err := await(ctx, s.listening, errNotListening); err != nil {
		return err
	}
	for first := true; ; {
		select {
		case <-s.heard: // an older notification, which proves little
		default:
		}
		switch err := s.tell(ctx, aboutNothing); {
		case ctx.Err() != nil:
			return nil
		case err != nil: // a send error is not about receiving
			if s.sending.broken(err); !outage.Pause(ctx, checkTimeout) {
				return nil
			}
			continue
		}
		s.sending.works()
		if err := await(ctx, s.heard, errUnheard); err != nil {
			return err
		}
		proven()
		s.hearing.works()
		if first { // notifications sent before were not received
			for _, wake := range topics {
				access.Wakeups(s.registry).Send(wake)
			}
		}
		if first = false; !outage.Pause(ctx, checkEvery) {
			return nil
		}
	}
}

// await waits for the event. On a timeout it returns late, otherwise the context's error.
func await(ctx context.Context, event <-chan struct{}, late error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, late)
	defer cancel()
	select {
	case <-event:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
