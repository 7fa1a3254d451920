package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/alarm"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
)

const (
	// stopGrace is how long cancelled handlers get to return, and how long the last results get to
	// be written after their time is up.
	stopGrace = 400 * time.Millisecond
	// settleGrace is the least time for the last results unless Close was called: a busy database
	// should not make finished messages run again.
	settleGrace = 600 * time.Millisecond
)

// errUnstarted releases a message that was claimed and never run.
var errUnstarted error = &bus.OutcomeError{Outcome: bus.Released, Reason: "not started"}

func (p *Processor) newRun(ctx context.Context) *run {
	r := &run{
		Processor: p,
		ctx:       context.WithoutCancel(ctx),
		owner:     uuid.NewString(),
		ledger:    newLedger(p.config.BatchSize, &p.counters.fenced),
		stopNow:   make(chan struct{}),
		gathers:   gatherPatience,
		alarm:     alarm.New(),
		soon:      alarm.New(2*time.Millisecond, 10*time.Millisecond, 50*time.Millisecond, 250*time.Millisecond),
		pollRetry: outage.NewRetry(),
		// After an outage no claims are recovered for a third of a lease, so that their owners can
		// renew what expired meanwhile.
		outage:    outage.New(p.config.Logger, p.config.LeaseDuration/3, p.store.Look(p.db)),
		unrenewed: rateLimitedLog{logger: p.config.Logger, text: "leases cannot be renewed, their consumers are cancelled"},
		takenAway: rateLimitedLog{logger: p.config.Logger, text: "claims were taken away, their consumers are cancelled"},
		recovered: rateLimitedLog{logger: p.config.Logger, text: "claims of lost processes recovered"},
	}
	consumers := make([]*consumer, len(p.consumers))
	for i, c := range p.consumers {
		consumers[i] = &c
	}
	r.claiming = r.ctx
	r.pool = newGoroutinePool(&r.workers)
	r.dispatcher = newDispatcher(p.config, consumers)
	r.born(time.Now())
	r.chain = bus.Compose(nil, p.config.Middleware...)
	r.work, r.cancelWork = context.WithCancelCause(r.ctx)
	return r
}

// born sets the start of the run, after which it is careful for a while.
func (r *run) born(now time.Time) {
	r.started = now
	r.dispatcher.quarantine.begin(r.config.LeaseDuration, now)
}

// background runs fn on a goroutine that the caller waits for.
func background(fn func()) (done <-chan struct{}) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		fn()
	}()
	return over
}

// serve starts everything, waits for ctx, and stops everything in the order in which messages flow.
func (r *run) serve(ctx context.Context) error {
	defer r.cancelWork(nil)
	r.born(time.Now())
	stopListening := r.listen()
	defer r.dispatcher.watchCircuits()()
	loopCtx, stopLoops := context.WithCancel(r.ctx)
	defer stopLoops()
	keeperCtx, stopKeeper := context.WithCancel(r.ctx)
	defer stopKeeper()
	settleCtx, giveUp := context.WithCancel(r.ctx)
	defer giveUp()
	var stopClaims context.CancelFunc
	r.claiming, stopClaims = context.WithCancel(r.ctx)
	defer stopClaims()

	defer r.reporting(ctx)()
	r.startWorkers()
	keeper := background(func() { r.keeper(keeperCtx) })
	finish := make(chan struct{})
	var settleErr error
	settled := background(func() { settleErr = r.settler(settleCtx, finish) })
	loops := r.loops(loopCtx)

	r.serving.Store(true)
	<-ctx.Done()
	deadline := time.Now().Add(r.config.DrainTimeout)
	r.serving.Store(false)
	r.stopping.Store(true)
	stopListening()
	stopLoops()
	for _, t := range r.dispatcher.close() {
		r.settled(t, errUnstarted)
	}
	r.pool.close()
	r.ledger.close()
	running := r.drain(deadline)
	looped := background(loops.Wait)
	if !waitFor(looped, time.Until(deadline), r.stopNow) && !waitFor(looped, stopGrace, nil) {
		stopClaims()
	}
	<-looped
	r.dispatcher.catalog.endRateWaits(time.Now())
	close(finish)
	if !waitFor(settled, max(time.Until(deadline), settleGrace), r.stopNow) && !waitFor(settled, stopGrace, nil) {
		giveUp()
	}
	<-settled
	r.releaseRest(settleCtx)
	stopKeeper()
	<-keeper
	r.returnSlots(settleCtx)
	if len(running) > 0 {
		settleErr = errors.Join(&bus.DrainError{Consumers: running}, settleErr)
	}
	return settleErr
}

// loops starts the loops that run until ctx ends.
func (r *run) loops(ctx context.Context) *sync.WaitGroup {
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){r.poller, r.expecting, r.unregistered, r.slotKeeper, r.breakers} {
		loops.Go(func() { loop(ctx) })
	}
	for range r.config.Fetchers {
		loops.Go(func() { r.claimLoop(ctx) })
	}
	return &loops
}

func (r *run) startWorkers() {
	for range r.config.Concurrency {
		w := r.newWorker()
		r.slots = append(r.slots, w)
		r.startWorker(w, nil)
	}
}

// drain waits for the workers until the deadline, then cancels their handlers, and at last abandons
// those that do not return. It returns the consumers of those.
func (r *run) drain(deadline time.Time) (running []string) {
	done := background(r.workers.Wait)
	if !waitFor(done, time.Until(deadline), r.stopNow) {
		r.cancelWork(bus.ErrStopping)
		if !waitFor(done, stopGrace, nil) {
			for _, w := range r.slots {
				w.giveUp(w.call.Load())
			}
			// A worker cannot abandon a middleware that hangs.
			if !waitFor(done, stopGrace/2, nil) {
				return append(r.dispatcher.queue.abandonedConsumers(), r.runningInMiddleware()...)
			}
		}
	}
	<-done
	return r.dispatcher.queue.abandonedConsumers()
}

// releaseRest releases claims left after settling: of runs that hang in a middleware, and of
// commits that were never confirmed. What it cannot release runs again when its lease ends.
func (r *run) releaseRest(ctx context.Context) {
	if len(r.ledger.held()) == 0 && !r.unknownClaims.Load() {
		return
	}
	if r.outage.Err() == nil { // settling may have given up on messages that are locked
		ctx = r.ctx
	}
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	held, err := r.store.Extend(ctx, r.db, r.owner, r.config.LeaseDuration)
	if err == nil && len(held) > 0 {
		err = r.store.Disclaim(ctx, r.db, r.owner, held)
	}
	if err != nil {
		r.outage.Failed("release", err)
	}
}

func (r *run) runningInMiddleware() (names []string) {
	for _, w := range r.slots {
		if t := w.current.Load(); t != nil {
			names = append(names, t.consumer.Name())
		}
	}
	return names
}

// waitFor reports whether done was closed before the time was up or the wait was cut short.
func waitFor(done <-chan struct{}, d time.Duration, cut <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-cut:
	case <-timer.C:
	}
	return false
}
