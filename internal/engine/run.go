package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/alarm"
	"github.com/asyncmonolith/asyncmonolith-go/internal/heartbeat"
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

// run is one Run of a processor, or one ProcessNext. It starts its parts and stops them. A part
// calls parts above it in this list only, except that a worker calls the executor, which has the
// worker of a message make its calls.
type run struct {
	processor  *Processor
	ctx        context.Context // of the statements that must outlive a stop
	owner      string
	outage     *outage.Outage
	alarm      *alarm.Alarm // of the poller
	warnings   warnings
	ledger     *ledger
	dispatcher *dispatcher
	inFlight   inFlightClaims
	stops      stopRequests

	recorder    recorder
	checker     declarationChecker
	transactor  transactor
	executor    executor
	workers     workerPool
	slots       slotKeeper
	breakers    breakerSync
	renewer     renewer
	keeper      leaseKeeper
	settler     settler
	groups      groupSweeper
	stopper     stopper
	recoverer   recoverer
	pollQueries pollQueries
	poller      poller
	enqueuer    enqueuer
	claimer     claimer
	listener    listener
	forgetter   forgetter
	handOffs    handOffs

	work        context.Context // the root of all handlers' contexts
	cancelWork  context.CancelCauseFunc
	serving     atomic.Bool // false before the start and once it stops
	stopping    atomic.Bool
	stopNow     chan struct{}
	stopNowOnce sync.Once
}

func (p *Processor) newRun(ctx context.Context) *run {
	consumers := make([]*consumer, len(p.consumers))
	for i, c := range p.consumers {
		if c.settings.Keep > 0 {
			c.version = heartbeat.Version(p.registry)
		}
		consumers[i] = &c
	}
	logger := p.config.Logger
	r := &run{
		processor: p,
		ctx:       context.WithoutCancel(ctx),
		owner:     uuid.NewString(),
		// After an outage no claims are recovered for a third of a lease, so that their owners can
		// renew what expired meanwhile.
		outage: outage.New(logger, p.config.LeaseDuration/3, p.store.Look(p.db)),
		alarm:  alarm.New(),
		warnings: warnings{
			unrenewed: rateLimitedLog{logger: logger, text: "leases cannot be renewed, their consumers are cancelled"},
			takenAway: rateLimitedLog{logger: logger, text: "claims were taken away, their consumers are cancelled"},
			recovered: rateLimitedLog{logger: logger, text: "claims of lost processes recovered"},
		},
		ledger:     newLedger(p.config.BatchSize, &p.counters.fenced),
		dispatcher: newDispatcher(p.config, consumers),
		stopNow:    make(chan struct{}),
	}
	r.work, r.cancelWork = context.WithCancelCause(r.ctx)
	r.assembleWork()
	r.assembleLoops()
	r.markStart(time.Now())
	return r
}

// assembleWork connects the parts that run messages and settle their outcomes.
func (r *run) assembleWork() {
	p, d := r.processor, r.dispatcher
	r.recorder = recorder{ledger: r.ledger, dispatcher: d, stops: &r.stops, uncounted: &p.uncounted}
	r.transactor = transactor{
		store: p.store, db: p.db, owner: r.owner, config: &p.config, registry: p.registry, ctx: r.ctx, outage: r.outage,
		uncounted: &p.uncounted, handOffs: &r.handOffs,
	}
	r.executor = executor{
		config: &p.config, registry: p.registry, counters: &p.counters, chain: bus.Compose(nil, p.config.Middleware...),
		transactor: &r.transactor, queue: &d.queue, limiters: &d.limiters, pollState: &d.pollState, recorder: &r.recorder,
		pool: newGoroutinePool(&r.workers.running), stopping: &r.stopping,
	}
	r.workers.executor, r.workers.queue = &r.executor, &d.queue
	r.slots = slotKeeper{
		store: p.store, db: p.db, owner: r.owner, config: &p.config, ctx: r.ctx, outage: r.outage,
		catalog: &d.catalog, limiters: &d.limiters, wanted: d.capacity.slotsWanted,
	}
	r.renewer = renewer{
		store: p.store, db: p.db, owner: r.owner, config: &p.config, ctx: r.ctx, ledger: r.ledger, limiters: &d.limiters,
		slots: &r.slots, recorder: &r.recorder, outage: r.outage, inFlight: &r.inFlight, warnings: &r.warnings,
	}
	r.keeper = leaseKeeper{
		config: &p.config, ledger: r.ledger, queue: &d.queue, limiters: &d.limiters, workers: &r.workers,
		recorder: &r.recorder, renewer: &r.renewer, alarm: r.alarm, warnings: &r.warnings,
	}
	r.groups = groupSweeper{
		store: p.store, db: p.db, registry: p.registry, config: &p.config, outage: r.outage,
		alarm: alarm.New(2*time.Millisecond, 10*time.Millisecond, 50*time.Millisecond, 250*time.Millisecond),
		aside: make(map[string]groupWait), hinted: make(map[string]bool), expected: make(map[string]time.Time),
	}
	r.settler = settler{
		store: p.store, db: p.db, owner: r.owner, config: &p.config, ledger: r.ledger, dispatcher: d,
		recorder: &r.recorder, outage: r.outage, alarm: r.alarm, warnings: &r.warnings, groups: &r.groups,
	}
}

// assembleLoops connects the parts that look for work and claim it.
func (r *run) assembleLoops() {
	p, d := r.processor, r.dispatcher
	r.checker = declarationChecker{
		store: p.store, db: p.db, config: &p.config, registry: p.registry, counters: &p.counters, catalog: &d.catalog,
		outage: r.outage,
	}
	r.breakers = breakerSync{store: p.store, db: p.db, config: &p.config, outage: r.outage, dispatcher: d}
	r.forgetter = forgetter{store: p.store, db: p.db, outage: r.outage, catalog: &d.catalog}
	r.stopper = stopper{
		store: p.store, db: p.db, owner: r.owner, outage: r.outage, ledger: r.ledger, stops: &r.stops,
		queue: &d.queue, workers: &r.workers, recorder: &r.recorder,
	}
	r.recoverer = recoverer{
		store: p.store, db: p.db, config: &p.config, counters: &p.counters, outage: r.outage, alarm: r.alarm,
		warnings: &r.warnings,
	}
	r.pollQueries = pollQueries{store: p.store, db: p.db, pollState: &d.pollState}
	r.poller = poller{
		store: p.store, db: p.db, config: &p.config, outage: r.outage, alarm: r.alarm, pollQueries: &r.pollQueries, pollState: &d.pollState,
		recoverer: &r.recoverer, renewer: &r.renewer, stopper: &r.stopper, warnings: &r.warnings, retry: outage.NewRetry(),
	}
	r.enqueuer = enqueuer{
		store: p.store, db: p.db, owner: r.owner, config: &p.config, parent: r.work, catalog: &d.catalog, queue: &d.queue,
		pollState: &d.pollState, ledger: r.ledger, recorder: &r.recorder, checker: &r.checker,
	}
	r.claimer = claimer{
		store: p.store, db: p.db, owner: r.owner, config: &p.config, counters: &p.counters, ctx: r.ctx, planner: &d.planner,
		ledger: r.ledger, enqueuer: &r.enqueuer, poller: &r.poller, checker: &r.checker, outage: r.outage, inFlight: &r.inFlight,
	}
	r.listener = listener{
		store: p.store, db: p.db, registry: p.registry, config: &p.config, counters: &p.counters, dispatcher: d,
		pollQueries: &r.pollQueries, outage: r.outage, alarm: r.alarm, groups: &r.groups,
		soon: alarm.New(2*time.Millisecond, 10*time.Millisecond, 50*time.Millisecond, 250*time.Millisecond),
	}
	r.handOffs = handOffs{
		store: p.store, db: p.db, owner: r.owner, config: &p.config, ctx: r.ctx, dispatcher: d, enqueuer: &r.enqueuer,
		claimer: &r.claimer, outage: r.outage, inFlight: &r.inFlight, ids: idReserve{low: make(chan struct{}, 1)},
	}
}

// markStart sets the start of the run, after which it is careful for a while.
func (r *run) markStart(now time.Time) {
	r.executor.started, r.recoverer.started, r.checker.started = now, now, now
	r.dispatcher.quarantine.begin(r.processor.config.LeaseDuration, now)
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
	r.markStart(time.Now())
	stopListening := r.listener.listen()
	defer r.dispatcher.watchCircuits()()
	loopCtx, stopLoops := context.WithCancel(r.ctx)
	defer stopLoops()
	keeperCtx, stopKeeper := context.WithCancel(r.ctx)
	defer stopKeeper()
	settleCtx, giveUp := context.WithCancel(r.ctx)
	defer giveUp()
	var stopClaims context.CancelFunc
	r.claimer.ctx, stopClaims = context.WithCancel(r.ctx)
	defer stopClaims()

	defer r.reporting(ctx)()
	r.workers.start(r.processor.config.Concurrency)
	keeper := background(func() { r.keeper.loop(keeperCtx) })
	finish := make(chan struct{})
	var settleErr error
	settled := background(func() { settleErr = r.settler.loop(settleCtx, finish) })
	loops := r.loops(loopCtx)

	r.serving.Store(true)
	stopReceiving := r.handOffs.receive(r.processor.registry)
	<-ctx.Done()
	arrived := stopReceiving()
	deadline := time.Now().Add(r.processor.config.DrainTimeout)
	r.serving.Store(false)
	r.stopping.Store(true)
	stopListening()
	stopLoops()
	for _, t := range r.dispatcher.close() {
		r.recorder.record(t, errUnstarted)
	}
	r.executor.pool.close()
	r.ledger.close()
	running := r.drain(deadline)
	looped := background(loops.Wait)
	if !waitFor(looped, time.Until(deadline), r.stopNow) && !waitFor(looped, stopGrace, nil) {
		stopClaims()
	}
	<-looped
	waitFor(arrived, time.Until(deadline), r.stopNow)
	r.handOffs.end()
	defer r.endRates()()
	close(finish)
	if !waitFor(settled, max(time.Until(deadline), settleGrace), r.stopNow) && !waitFor(settled, stopGrace, nil) {
		giveUp()
	}
	<-settled
	r.renewer.releaseRest(settleCtx)
	stopKeeper()
	<-keeper
	r.slots.returnAll(settleCtx)
	if len(running) > 0 {
		settleErr = errors.Join(&bus.DrainError{Consumers: running}, settleErr)
	}
	return settleErr
}

// loops starts the loops that run until ctx ends.
func (r *run) loops(ctx context.Context) *sync.WaitGroup {
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){
		r.poller.loop, r.listener.loop, r.checker.loop, r.slots.loop, r.breakers.loop, r.handOffs.loop, r.groups.loop,
		r.forgetter.loop,
	} {
		loops.Go(func() { loop(ctx) })
	}
	for range r.processor.config.Fetchers {
		loops.Go(func() { r.claimer.loop(ctx) })
	}
	return &loops
}

// drain waits for the workers until the deadline, then cancels their handlers, and at last abandons
// those that do not return. It returns the consumers of those.
func (r *run) drain(deadline time.Time) (running []string) {
	done := background(r.workers.running.Wait)
	if !waitFor(done, time.Until(deadline), r.stopNow) {
		r.cancelWork(bus.ErrStopping)
		if !waitFor(done, stopGrace, nil) {
			for _, w := range r.workers.all {
				w.giveUp(w.call.Load())
			}
			// A worker cannot abandon a middleware that hangs.
			if !waitFor(done, stopGrace/2, nil) {
				return append(r.dispatcher.queue.abandonedConsumers(), r.workers.runningInMiddleware()...)
			}
		}
	}
	<-done
	return r.dispatcher.queue.abandonedConsumers()
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
