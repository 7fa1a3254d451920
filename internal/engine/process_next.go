package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// ProcessNext claims one message that is due, runs its consumer and writes the outcome.
func (p *Processor) ProcessNext(ctx context.Context, consumers ...string) (ran bool, err error) {
	if p == nil {
		return false, fmt.Errorf("outbox: process next: %w", ErrUnmade)
	}
	r := p.newRun(ctx)
	defer r.cancelWork(nil)
	if ran, err = r.processNext(ctx, consumers); err != nil {
		return ran, fmt.Errorf("outbox: process next: %w", dberr.Explained(err))
	}
	return ran, nil
}

// nextRequest looks for one message to claim, as the poller does for many. It returns false if there is
// none. It considers messages that have crashed as often as in most, and less.
func (r *run) nextRequest(wants []store.Want, most store.Selection) (store.ClaimRequest, bool, error) {
	request := store.ClaimRequest{Wants: wants, Limit: 1, MaxBytes: maxClaimBytes}
	sent := time.Now()
	poll, err := r.poll(wants)
	r.dispatcher.pollState.setClock(poll.Now, sent)
	if err == nil && poll.Overdue > r.processor.config.LeaseDuration/3 { // else an outage may have delayed its renewal
		r.recoverer.recoverClaims(r.ctx)
		poll, err = r.poll(wants)
	}
	crashed := store.Clean
	switch {
	case most >= store.Killers && len(poll.Killers) > 0:
		crashed = store.Killers
	case most >= store.Suspects && len(poll.Suspects) > 0:
		crashed = store.Suspects
	}
	switch {
	case err != nil:
		return request, false, err
	case crashed != store.Clean && r.alone():
		request.Select, request.Solo = crashed, crashed == store.Killers
		request.Stuck = r.dispatcher.catalog.stuckOf(wants)
	case len(poll.Due) > 0:
		request.Wants = make([]store.Want, len(poll.Due))
		for i, due := range poll.Due {
			request.Wants[i] = wants[due]
			request.Wants[i].Limit = 1
		}
		r.dispatcher.catalog.narrow(&request, poll)
	default:
		return request, false, nil
	}
	return request, true, nil
}

func (r *run) poll(wants []store.Want) (store.Poll, error) {
	if len(wants) == 0 {
		return store.Poll{}, nil
	}
	ctx, cancel := context.WithTimeout(r.ctx, statementTimeout)
	defer cancel()
	return r.pollQueries.poll(ctx, wants, r.dispatcher.catalog.amongLocked(wants))
}

// findWork notes which consumers have messages that are due.
func (r *run) findWork(wants []store.Want) error {
	poll, err := r.poll(wants)
	if err != nil {
		return err
	}
	r.dispatcher.pollState.appeared(wants, poll)
	return nil
}

// alone reports whether nothing else in this processor may run a crashed message, neither Run nor
// another ProcessNext. That holds until this one ends.
func (r *run) alone() bool {
	r.processor.mu.Lock()
	defer r.processor.mu.Unlock()
	if r.processor.current != nil || r.processor.crashed != nil && r.processor.crashed != r {
		return false
	}
	r.processor.crashed = r
	return true
}

// endAlone lets other calls of ProcessNext run crashed messages.
func (r *run) endAlone() {
	r.processor.mu.Lock()
	defer r.processor.mu.Unlock()
	if r.processor.crashed == r {
		r.processor.crashed = nil
	}
}

// processNext claims, runs and settles one message. Meanwhile the keeper renews the lease and
// enforces the timeout.
func (r *run) processNext(ctx context.Context, consumers []string) (ran bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	wants, err := r.dispatcher.catalog.wantsOf(consumers)
	if err != nil {
		return false, err
	}
	defer r.endAlone()
	defer r.slots.returnAll(r.ctx)
	if breakers := r.dispatcher.catalog.breakers(); len(breakers) > 0 {
		if err := r.findWork(wants); err != nil { // an open circuit breaker probes only if there is work
			return false, err
		}
		r.breakers.sync(r.ctx, breakers)
		defer func() { r.breakers.sync(r.ctx, breakers) }()
	}
	if wants, err = r.slots.takeOneEach(wants); err != nil {
		return false, err
	}
	r.dispatcher.queue.impatient = true
	w := newWorker(&r.executor)
	r.workers.all = []*worker{w}
	defer func() { // also when a middleware ends this goroutine
		err = errors.Join(err, r.writeOutcomes(), r.returnUnused(statementTimeout), r.endGroups())
	}()
	if claimed, err := r.claimNextOrGroups(wants); err != nil || !claimed {
		return false, err
	}
	t := r.dispatcher.queue.takeNow()
	for _, left := range r.dispatcher.close() { // the circuit has opened meanwhile, or it joins no batch
		r.recorder.record(left, errUnstarted)
	}
	if t == nil {
		return false, nil
	}
	keeperCtx, stopKeeper := context.WithCancel(r.ctx)
	keeper := background(func() { r.keeper.loop(keeperCtx) })
	defer func() {
		stopKeeper()
		<-keeper
	}()
	defer w.isolate.Dismiss()
	defer r.workers.running.Wait()
	defer r.executor.pool.close()
	defer r.dispatcher.queue.finished(t)
	defer context.AfterFunc(ctx, func() { r.cancelWork(bus.ErrStopping) })()
	if t.together() {
		w.runGroup(append([]*task{t}, t.others...))
		return true, nil
	}
	for _, behind := range t.others { // they join no batch with a message that has failed before
		r.recorder.notStarted(behind)
	}
	t.others = nil
	w.process(t)
	return true, nil
}

// claimNext claims one message. If a claim brings none, since transactions lock what is due, another
// process was first, or a rate is spent, it looks for a message of other consumers.
func (r *run) claimNext(wants []store.Want) (bool, error) {
	left := wants
	for most := store.Killers; ; {
		left = r.dispatcher.withoutOpenCircuits(left)
		request, ok, err := r.nextRequest(left, most)
		if err != nil {
			return false, err
		}
		if !ok {
			return r.claimKeyed(r.dispatcher.withoutOpenCircuits(wants))
		}
		claimed, err := r.claimer.claim(claimPlan{request: request})
		if err != nil {
			r.inFlight.unknown.Store(true) // it may have been committed
			return false, err
		}
		if len(claimed.Messages) > 0 {
			return true, nil
		}
		if request.Select != store.Clean {
			most = request.Select - 1
			continue
		}
		left = slices.DeleteFunc(left, func(w store.Want) bool {
			return slices.ContainsFunc(request.Wants, func(tried store.Want) bool { return w.Consumer == tried.Consumer })
		})
	}
}

// claimNextOrGroups claims one message. If there is none, it ends the groups that are done and claims
// what waited for them. A group that cannot end is the error only if it claims nothing.
func (r *run) claimNextOrGroups(wants []store.Want) (claimed bool, err error) {
	if claimed, err = r.claimNext(wants); claimed || err != nil {
		return claimed, err
	}
	var held error
	for {
		fired, failed := r.groups.sweep(r.ctx)
		if dberr.IsUnavailable(failed) {
			return false, failed
		}
		if fired > 0 {
			if claimed, err = r.claimNext(wants); claimed || err != nil {
				return claimed, err
			}
		}
		held = errors.Join(held, failed)
		if r.groups.behind == "" {
			return false, held
		}
	}
}

// endGroups ends groups whose last member has just been settled.
func (r *run) endGroups() error {
	_, err := r.groups.look(r.ctx, r.groups.take(time.Now()))
	return err
}

// claimKeyed claims one message with a key, or a batch.
func (r *run) claimKeyed(wants []store.Want) (bool, error) {
	ctx, cancel := context.WithTimeout(r.ctx, statementTimeout)
	names, err := r.processor.store.Claims.KeyedConsumers(ctx, r.processor.db)
	cancel()
	if err != nil {
		return false, err
	}
	r.dispatcher.catalog.adopt(names)
	for _, l := range r.dispatcher.catalog.lanesAmong(wants) {
		if !slices.Contains(names, l.Name) {
			continue
		}
		ready := func() bool { ok, _ := l.pending(time.Now()); return ok }
		for l.activate(); ready(); { // nothing else uses the dispatcher
			began := time.Now()
			plan := claimPlan{began: began, parts: []part{l.part()}}
			limit := max(l.of.settings.BatchSize, 1)
			plan.request = store.ClaimRequest{Limit: limit, MaxBytes: maxClaimBytes, Rate: l.of.rate, Lanes: l.request(began, limit)}
			claimed, err := r.claimer.claim(plan)
			if err != nil {
				r.inFlight.unknown.Store(true)
				return false, err
			}
			if len(claimed.Messages) > 0 {
				return true, nil
			}
			l.claimed(plan, claimed, time.Now())
		}
	}
	return false, nil
}

// writeOutcomes settles what it can and releases the rest.
func (r *run) writeOutcomes() error {
	ctx, cancel := context.WithTimeout(r.ctx, statementTimeout)
	defer cancel()
	finish := make(chan struct{})
	close(finish)
	err := r.settler.loop(ctx, finish)
	r.renewer.releaseRest(r.ctx)
	return err
}

// narrow narrows a request to the consumer whose message is due first, if it has a rate,
// priorities or batches. Otherwise it leaves such consumers out.
func (ct *catalog) narrow(request *store.ClaimRequest, poll store.Poll) {
	first := 0
	for i := range poll.First {
		if poll.First[i].Before(poll.First[first]) {
			first = i
		}
	}
	c := ct.byName[request.Wants[first].Consumer]
	request.Rate, request.Ageing = c.rate, c.settings.Aging
	alone := func(c *consumer) bool { return c.rate != nil || c.settings.Aging > 0 || c.settings.BatchSize > 0 }
	request.Wants = slices.DeleteFunc(request.Wants, func(w store.Want) bool {
		other := ct.byName[w.Consumer]
		return alone(c) && other != c || !alone(c) && alone(other)
	})
	if _, open := c.circuit.NextProbe(); c.settings.BatchSize == 0 || open { // a probe is one message
		return
	}
	request.Limit = c.settings.BatchSize
	for i := range request.Wants {
		request.Wants[i].Limit = request.Limit
	}
}
