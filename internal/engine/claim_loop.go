package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// claimer leases messages whenever there is capacity for them.
type claimer struct {
	store    *store.Store
	db       *bun.DB
	owner    string
	config   *ProcessorConfig
	counters *counters
	ctx      context.Context // of claims, which a stop does not end at once
	planner  *planner
	ledger   *ledger
	enqueuer *enqueuer
	poller   *poller
	checker  *declarationChecker
	outage   *outage.Outage
	inFlight *inFlightClaims
	last     atomic.Int64 // when a claim last brought messages
}

// loop claims until ctx ends.
func (cl *claimer) loop(ctx context.Context) {
	retry := outage.NewRetry()
	for {
		cl.ledger.await()
		plan, ok := cl.planner.nextClaim()
		if !ok {
			return
		}
		began := time.Now()
		claimed, err := cl.claim(plan)
		if err != nil && cl.ctx.Err() != nil {
			cl.inFlight.unknown.Store(true)
			return
		}
		if err != nil {
			if claimed.ID != 0 || !dberr.Answered(err) || dberr.IsUnavailable(err) {
				plan.dropUnused() // the claim may have been committed
			}
			if !cl.failed(plan, err, began) && !outage.Pause(ctx, retry.NextBackOff()) {
				return
			}
			continue
		}
		if cl.planner.claimed(plan, claimed, time.Now()) {
			// Another process claimed it, or it was committed out of order and lies before the
			// cursor.
			cl.poller.sweepSoon()
		}
		cl.outage.Recovered()
		retry.Reset()
	}
}

// failed handles a failed claim and reports whether other consumers can be claimed for at once.
func (cl *claimer) failed(plan claimPlan, err error, began time.Time) (goOn bool) {
	cl.outage.Failed("claim", err)
	cl.inFlight.unknown.Store(true)
	slow := tooSlow(began)
	return cl.planner.failed(plan, slow, !slow && dberr.IsUnavailable(err), time.Now())
}

// claim leases messages and hands them to the workers. A stop does not cancel it while there is
// time: a claim that commits unknown to us has to be found later. If it returns an error with a
// claim, the claim was committed, and its messages do not run.
func (cl *claimer) claim(plan claimPlan) (store.Claim, error) {
	plan.request.Owner, plan.request.Lease = cl.owner, cl.config.LeaseDuration
	ctx, cancel := context.WithTimeout(cl.ctx, statementTimeout)
	defer cancel()
	if plan.acquits {
		if err := cl.store.Claims.Acquit(ctx, cl.db, cl.owner); err != nil {
			return store.Claim{}, fmt.Errorf("acquit: %w", err)
		}
	}
	end := cl.inFlight.begin()
	defer end()
	c, err := cl.store.Claims.Claim(ctx, cl.db, plan.request)
	if err != nil {
		return store.Claim{}, fmt.Errorf("claim: %w", err)
	}
	if c.News.Unknown != "" {
		cl.checker.warn(store.Unhandled{ConsumerType: plan.request.Lanes.Name, PayloadType: c.News.Unknown})
	}
	if len(c.Messages) == 0 {
		cl.counters.emptyClaims.Add(1)
		return c, nil
	}
	cl.count(len(c.Messages))
	return cl.enqueuer.enqueue(ctx, c)
}

// count counts a claim of n messages.
func (cl *claimer) count(n int) {
	cl.counters.claims.Add(1)
	cl.counters.claimed.Add(int64(n))
	cl.last.Store(time.Now().UnixNano())
}
