package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// claimLoop claims messages whenever there is room, until ctx ends.
func (r *run) claimLoop(ctx context.Context) {
	retry := outage.NewRetry()
	for {
		r.ledger.await()
		plan, ok := r.dispatcher.planner.nextClaim()
		if !ok {
			return
		}
		began := time.Now()
		claimed, err := r.claim(plan)
		if err != nil && r.claiming.Err() != nil {
			r.unknownClaims.Store(true)
			return
		}
		if err != nil {
			if !r.claimFailed(plan, err, began) && !outage.Pause(ctx, retry.NextBackOff()) {
				return
			}
			continue
		}
		if r.dispatcher.planner.claimed(plan, claimed, time.Now()) {
			// Another process claimed it, or it was committed out of order and lies before the
			// cursor.
			r.alarm.By(later(r.sweeper.at(), time.Now()))
		}
		r.outage.Recovered()
		retry.Reset()
	}
}

// claimFailed handles a failed claim and reports whether other consumers can be claimed for at
// once.
func (r *run) claimFailed(plan claimPlan, err error, began time.Time) (goOn bool) {
	r.outage.Failed("claim", err)
	r.unknownClaims.Store(true)
	slow := tooSlow(began)
	return r.dispatcher.planner.failed(plan, slow, !slow && dberr.IsUnavailable(err), time.Now())
}

// claim leases messages and hands them to the workers. A stop does not cancel it while there is
// time: a claim that commits unknown to us has to be found later.
func (r *run) claim(plan claimPlan) (store.Claim, error) {
	plan.request.Owner, plan.request.Lease = r.owner, r.config.LeaseDuration
	ctx, cancel := context.WithTimeout(r.claiming, statementTimeout)
	defer cancel()
	if plan.acquits {
		if err := r.store.Acquit(ctx, r.db, r.owner); err != nil {
			return store.Claim{}, fmt.Errorf("acquit: %w", err)
		}
	}
	end := r.inFlight.begin()
	defer end()
	c, err := r.store.Claim(ctx, r.db, plan.request)
	if err != nil {
		return store.Claim{}, fmt.Errorf("claim: %w", err)
	}
	if c.News.Unknown != "" {
		r.warnOf(store.Unhandled{ConsumerType: plan.request.Lanes.Name, PayloadType: c.News.Unknown})
	}
	if len(c.Messages) == 0 {
		r.counters.emptyClaims.Add(1)
		return c, nil
	}
	r.counters.claims.Add(1)
	r.counters.claimed.Add(int64(len(c.Messages)))
	r.lastClaim.Store(time.Now().UnixNano())
	return r.queue(ctx, c)
}

// queue hands claimed messages to the workers and returns the claim with those accepted.
func (r *run) queue(ctx context.Context, c store.Claim) (store.Claim, error) {
	// Opened first, so that the lease is renewed while messages are renamed and events are read.
	l := r.ledger.open(r.work, c.ID, len(c.Messages), c.Sent.Add(r.config.LeaseDuration))
	l.lanes, l.deep = r.dispatcher.catalog.lanesOf(c), c.News.Deep
	l.urgent = l.lanes != nil && l.lanes.bounded()
	l.unique = slices.ContainsFunc(c.Messages, func(m store.Message) bool { return m.InsertID != "" })
	stay, err := r.rename(ctx, c)
	if err == nil {
		err = r.store.FillIn(ctx, r.db, c.Messages)
	}
	tasks := make([]task, len(c.Messages))
	now := time.Now()
	l.ahead = r.dispatcher.probes.clock(now).Sub(now)
	for i, row := range c.Messages {
		newTask(&tasks[i], row, r.dispatcher.catalog.byName[row.ConsumerType], l, now)
		r.checkRoutes(&tasks[i].message)
		r.checkOrder(&tasks[i])
	}
	if err != nil || l.ctx.Err() != nil {
		stay = len(tasks)
	}
	for i := len(tasks) - stay; i < len(tasks); i++ {
		r.settled(&tasks[i], errUnstarted)
	}
	if tasks = tasks[:len(tasks)-stay]; len(tasks) > 0 && !r.dispatcher.queue.push(tasks) {
		for i := range tasks {
			r.settled(&tasks[i], errUnstarted)
		}
		tasks = nil
	}
	c.Messages = c.Messages[:len(tasks)] // the rest is not in flight
	if err != nil {
		return store.Claim{}, fmt.Errorf("claim: %w", err)
	}
	return c, nil
}
