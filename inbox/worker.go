package inbox

import (
	"context"
	"errors"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
)

const (
	firstRetry   = time.Second
	longestRetry = 30 * time.Second
)

// pausedError ends a subscription that continues later.
type pausedError struct{ reason error }

func (e *pausedError) Error() string { return "inbox: paused: " + e.reason.Error() }
func (e *pausedError) Unwrap() error { return e.reason }

// worker runs one receiver.
type worker struct {
	*services
	*receiver
	state    state
	backlog  backlog
	lease    lease
	types    typeTable
	acceptor acceptor
	retrier  acceptor // of parked records: its calls that hang do not stop the receiver
}

func newWorker(s *services, r *receiver) *worker {
	w := &worker{services: s, receiver: r}
	w.backlog = backlog{services: s, receiver: r, state: &w.state}
	w.lease = lease{services: s, receiver: r, state: &w.state}
	w.types = typeTable{services: s, receiver: r, state: &w.state}
	w.acceptor = acceptor{services: s, receiver: r, reader: reader{r, s.registry, &w.state.abandoned}, worker: w}
	w.retrier = acceptor{services: s, receiver: r, reader: reader{r, s.registry, &w.state.abandonedRetries}, worker: w}
	return w
}

// run keeps the subscription running until ctx ends.
func (w *worker) run(ctx context.Context) {
	defer w.state.broker(nil) // the broker's state is not watched any more
	retry := firstRetry
	for w.backlog.await(ctx) && w.state.awaitReturn(ctx) && w.lease.await(ctx) {
		began := time.Now()
		worked, err := w.subscribe(ctx)
		if worked || time.Since(began) > longestRetry {
			retry = firstRetry
		}
		_, paused := errors.AsType[*pausedError](err)
		newer, lacks := errors.AsType[*newerError](err)
		switch {
		case ctx.Err() != nil:
			return
		case lacks:
			w.standBack(ctx, newer)
			fallthrough
		case paused, err == errSubscriberHangs:
			retry = firstRetry
			continue
		}
		w.state.broker(nil) // the subscription's error is more precise
		w.state.pause("the subscription has ended")
		w.logger.Error("subscription ended", "receiver", w.name, "error", err, "next_try_within", retry)
		if !outage.Pause(ctx, retry) {
			return
		}
		retry = min(2*retry, longestRetry)
	}
}

const (
	forgetEvery = time.Minute
	forgetRows  = 1000
)

// forget deletes inbox rows after the deduplication window, and stores the accepted types again.
func (w *worker) forget(ctx context.Context) {
	every := min(forgetEvery, w.window/10)
	for wait := every; outage.Pause(ctx, wait); {
		wait = every
		err := w.types.announce(ctx)
		for n := forgetRows; err == nil && n == forgetRows && ctx.Err() == nil; {
			n, err = w.forgetSome(ctx)
		}
		switch {
		case err == nil:
			w.outage.Recovered()
		case ctx.Err() == nil:
			wait = min(every, maxRetry) // no other statement may notice that the database is back
			w.outage.Failed("delete old inbox records", err, wait)
		}
	}
}

func (w *worker) forgetSome(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return w.store.Inbox.Forget(ctx, w.db, w.name, w.window, forgetRows)
}

// brokerAnswers is called by the subscriber with its broker's state. It logs the begin and end of
// an outage.
func (w *worker) brokerAnswers(err error) {
	before := w.state.broker(err)
	switch began := before.since.IsZero(); {
	case err != nil && began:
		w.logger.Warn("receiver waits for the broker", "receiver", w.name, "error", errorlog.Text(err))
	case err == nil && !began:
		w.logger.Info("broker answers the receiver again", "receiver", w.name, "after", time.Since(before.since))
	}
}
