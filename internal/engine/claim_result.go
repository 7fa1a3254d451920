package engine

import (
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	// oneByOneFor is how long each consumer has its own claims after a failure.
	oneByOneFor = 10 * time.Second
	// The wait of a consumer whose claims fail. It doubles each time.
	minPostponed, maxPostponed = 50 * time.Millisecond, 10 * time.Second
)

// claimed accounts for the result of a claim. A consumer has no more for now if it got fewer
// messages than asked for, counted from the edge of its cursors. unsure reports that a commit was
// announced and its message was not found.
func (pl *planner) claimed(plan claimPlan, c store.Claim, now time.Time) (unsure bool) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	defer pl.room.Signal()
	if plan.request.Select != store.Clean {
		pl.suspectFrom++
		pl.quarantine.claimed(plan.request, len(c.Messages), now)
		pl.suspectsClaimedLocked(plan.request, len(c.Messages) < plan.request.Limit && !c.Cut, now)
		pl.work.Broadcast() // a worker may have been kept free without need
		return false
	}
	switch {
	case len(c.Messages) >= paceFrom:
		pl.paceTo = time.Time{}
	case len(c.Messages) < plan.request.Limit && !c.Cut: // such claims take half of the time at most
		pl.paceTo = later(pl.paceTo, plan.began.Add(min(2*now.Sub(plan.began), mostPace)))
	}
	pl.unreserveLocked(plan)
	if l := plan.parts[0].lanes; l != nil {
		l.of.failures = 0
		l.claimed(plan, c, now)
		if l.of.settings.BatchWait > 0 && l.of.exhausted(now) {
			pl.work.Broadcast() // its batch need not wait for more
		}
		return false
	}
	i := 0 // among the wants of the request
	for _, p := range plan.parts {
		all, found := true, 0
		for _, want := range p.wants {
			w := plan.request.Wants[i]
			more := c.Cut || c.Found[i] >= w.Limit
			all = pl.pollState.cursors[want].claimed(w.After, plan.drops[i], c.Found[i], c.Last[i], more) && all
			if c.Dropped != nil {
				pl.pollState.cursors[want].dropped(c.Dropped[i])
			}
			found += c.Found[i]
			i++
		}
		p.failures = 0
		if c.Wait > 0 {
			p.notBefore = now.Add(c.Wait)
			p.rateWaits.begin(now, p.notBefore)
		}
		if all {
			p.clear = plan.began
		}
		if p.consumer.wakeups != p.wakeups || !all {
			continue
		}
		unsure = unsure || p.announced && found == 0
		p.active, p.announced = false, false
	}
	return unsure
}

// failed accounts for a failed claim. If one consumer may be the cause, each is tried in a claim of
// its own, and again later if that fails. apart reports that the others need not wait. slow means
// that the claim took too long, outage that the database did not answer at all.
func (pl *planner) failed(plan claimPlan, slow, outage bool, now time.Time) (apart bool) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	defer pl.room.Signal()
	if plan.request.Select != store.Clean {
		pl.suspectFrom++
		pl.quarantine.claimed(plan.request, 0, now)
		if plan.acquits || plan.request.Solo { // the claim may have been committed
			pl.quarantine.acquitting, pl.quarantine.blamed = false, true
		}
	} else {
		pl.unreserveLocked(plan)
		plan.keepUnused()
	}
	if outage {
		return false
	}
	pl.oneByOneUntil = now.Add(oneByOneFor)
	if plan.request.Select != store.Clean {
		return false
	}
	if len(plan.parts) > 1 {
		return true
	}
	c := plan.parts[0].consumer
	if l := plan.parts[0].lanes; l != nil && slow {
		l.failed(now)
	}
	c.notBefore = now.Add(min(minPostponed<<min(c.failures, 10), maxPostponed))
	c.failures++
	for _, want := range c.wants {
		if slow {
			pl.pollState.cursors[want].skip(pl.pollState.clockLocked(now).Add(-margin))
		}
	}
	return len(pl.catalog.consumers) > 1
}

// unreserveLocked releases the capacity that a claim had reserved.
func (pl *planner) unreserveLocked(plan claimPlan) {
	pl.asked -= plan.request.MaxBytes
	for _, p := range plan.parts {
		p.reserved -= p.asked
		pl.reserved -= p.asked
	}
}

// roomFreedLocked wakes a fetcher that waits for capacity. A paced fetcher looks again by itself.
func (pl *planner) roomFreedLocked(now time.Time) {
	if pl.waiting > 0 && !now.Before(pl.paceTo) && (pl.quarantine.pending() || pl.catalog.activeLocked()) {
		pl.room.Signal()
	}
}

// suspectsClaimedLocked notes that a claim has asked for the crashed messages of some consumers,
// and whether it found all of them. Those of consumers that could not start any wait until they
// can.
func (pl *planner) suspectsClaimedLocked(request store.ClaimRequest, all bool, now time.Time) {
	kind, asked := suspicionOf(request.Select), pl.catalog.amongLocked(request.Wants)
	left := false
	for _, c := range pl.catalog.consumers {
		if all && asked(c) {
			c.suspects &^= kind
		}
		left = left || c.suspects&kind != 0
	}
	if left {
		pl.quarantine.remain(request.Select, now)
	}
}
