package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	// pace is the least time between the starts of claims that bring little, so that each wake-up
	// does not cause a claim. It grows to mostPace where claims take long.
	pace     = 2 * time.Millisecond
	mostPace = 4 * time.Millisecond
	paceFrom = 32 // messages; claims that bring more are not paced
)

// claimPlan is a claim for a fetcher to make.
type claimPlan struct {
	request store.ClaimRequest
	parts   []part // of the wants of the request, in their order
	drops   []int  // drop counts of the cursors of the wants
	acquits bool   // nothing runs solo any more: see store.Acquit
	began   time.Time
}

// part is what a plan asks for on behalf of one consumer.
type part struct {
	*consumer
	lanes   *lanes // for messages with keys
	room    int
	asked   int
	wakeups int // of the consumer or the lanes when the plan was made
	frees   int // of the lanes when the plan was made
}

// planner is the fetchers' side of the dispatcher: it decides what to claim and records the results
// of claims.
type planner struct {
	mu         *sync.Mutex // the dispatcher's
	work, room *sync.Cond
	config     *ProcessorConfig
	catalog    *catalog
	quarantine *quarantine
	capacity   *capacity
	pollState  *pollState

	waiting       int       // fetchers that wait
	reserved      int       // messages that claims in flight may bring
	asked         int       // bytes that claims in flight may bring
	claimFrom     int       // next consumer to claim for
	suspectFrom   int       // next consumer whose crashed messages are claimed, if one by one
	oneByOneUntil time.Time // until then each consumer has its own claims, since a joint one failed
	paceTo        time.Time // no claim begins before, unless there is much to claim
	closed        bool
}

// nextClaim waits until there is something to claim and free capacity for it. It returns false when
// the processor stops.
func (pl *planner) nextClaim() (claimPlan, bool) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	for !pl.closed {
		now := time.Now()
		if wait := pl.paceTo.Sub(now); wait > 0 {
			pl.waitLocked(wait)
			continue
		}
		if plan, ok := pl.planLocked(now); ok {
			plan.began = now
			if plan.request.Select == store.Clean {
				pl.paceTo = now.Add(pace)
			}
			return plan, true
		}
		pl.waitLocked(pl.capacity.nextStart(now))
	}
	return claimPlan{}, false
}

// waitLocked waits for a change, and no longer than while unless that is zero.
func (pl *planner) waitLocked(while time.Duration) {
	if while > 0 {
		defer time.AfterFunc(while, func() {
			pl.mu.Lock()
			defer pl.mu.Unlock()
			pl.room.Broadcast()
		}).Stop()
	}
	pl.waiting++
	pl.room.Wait()
	pl.waiting--
}

// planLocked decides what to claim next: crashed messages, or for each active consumer its share of
// the free capacity. If both wait, they take turns.
func (pl *planner) planLocked(now time.Time) (claimPlan, bool) {
	if len(pl.capacity.abandoned) >= pl.config.Concurrency {
		return claimPlan{}, false
	}
	if !pl.quarantine.crashedLast {
		if plan, ok := pl.planSuspectsLocked(now); ok {
			pl.quarantine.crashedLast = true
			return plan, true
		}
	}
	if plan, ok := pl.planCleanLocked(now); ok {
		pl.quarantine.crashedLast = false
		return plan, true
	}
	if !pl.quarantine.crashedLast {
		return claimPlan{}, false
	}
	return pl.planSuspectsLocked(now)
}

// planSuspectsLocked asks for crashed messages of consumers that may start one.
func (pl *planner) planSuspectsLocked(now time.Time) (claimPlan, bool) {
	kind := pl.capacity.nextCrashed(now)
	if kind == store.Clean {
		return claimPlan{}, false
	}
	var asked []*consumer
	for i := range pl.catalog.consumers {
		c := pl.catalog.consumers[(pl.suspectFrom+i)%len(pl.catalog.consumers)]
		if c.suspects&suspicionOf(kind) != 0 && pl.capacity.mayStart(c, now).n > 0 {
			asked = append(asked, c)
		}
	}
	if len(asked) > 1 && now.Before(pl.oneByOneUntil) {
		asked = asked[:1]
	}
	var wants []store.Want
	for i, want := range pl.catalog.wants {
		if slices.Contains(asked, pl.catalog.owner[i]) {
			wants = append(wants, want)
		}
	}
	plan, ok := pl.quarantine.plan(kind, wants, pl.config.Concurrency-pl.capacity.running)
	plan.request.Stuck = pl.catalog.stuckLocked(func(c *consumer) bool { return slices.Contains(asked, c) })
	return plan, ok
}

// planCleanLocked asks for messages that have not crashed.
func (pl *planner) planCleanLocked(now time.Time) (claimPlan, bool) {
	left := maxHeldBytes - pl.capacity.held - pl.asked
	if !pl.catalog.activeLocked() {
		return claimPlan{}, false
	}
	// Each loop may hold one batch that has not started. Small claims are not
	// worth their round trips while there is still something to run.
	batch, queued := pl.batchLocked(now), pl.capacity.queued-pl.quarantine.queued
	budget := min(batch, batch*pl.config.Fetchers-queued-pl.reserved)
	if budget <= 0 || queued > 0 && budget < max(batch/4, 1) {
		return claimPlan{}, false
	}
	parts := pl.roomsLocked(now)
	if left <= 0 { // what runs is large: a consumer that holds nothing may still get one message
		parts, budget = holdingNothing(parts), 1
	}
	parts = separate(parts)
	if len(parts) > 1 && now.Before(pl.oneByOneUntil) {
		parts = parts[:1]
	}
	if len(parts) == 0 {
		return claimPlan{}, false
	}
	if parts[0].lanes != nil { // a claim for lanes is for one consumer, so it may bring more
		budget = min(2*budget, pl.config.BatchSize)
	}
	pl.claimFrom++
	distribute(parts, budget)
	return pl.writePlanLocked(parts, min(left, maxClaimBytes), now), true
}

// holdingNothing returns the parts of consumers that hold no message.
func holdingNothing(parts []part) []part {
	return slices.DeleteFunc(parts, func(p part) bool { return p.running+p.waiting+p.reserved > 0 })
}

// separate leaves a consumer with a rate alone in its claim, which is for what the rate allows.
// Keyed and prioritized messages, which are claimed differently, are alone, too. Each has its turn.
func separate(parts []part) []part {
	alone := func(p part) bool { return p.rate != nil || p.lanes != nil || p.settings.Aging > 0 }
	if len(parts) > 0 && alone(parts[0]) {
		return parts[:1]
	}
	return slices.DeleteFunc(parts, alone)
}

// slowBatch bounds a claim while few messages finish in a second.
const slowBatch = 500

// batchLocked returns the most that a claim takes now: a share of what finished in the last second
// that takes less than settleDelay. Claims then end as a whole, which costs least.
func (pl *planner) batchLocked(now time.Time) int {
	finished := 0
	for _, c := range pl.catalog.consumers {
		finished += c.finished.lastSecond(now)
	}
	return min(max(finished/32, slowBatch), pl.config.BatchSize)
}

// roomsLocked returns parts for the active consumers, starting with the next in turn, and the
// capacity of each: the free workers, plus what it finished in the last second, since it will need
// that next. A consumer with more than that waiting or coming needs no claim yet.
func (pl *planner) roomsLocked(now time.Time) (parts []part) {
	for i := range pl.catalog.consumers {
		c := pl.catalog.consumers[(pl.claimFrom+i)%len(pl.catalog.consumers)]
		if now.Before(c.notBefore) {
			continue
		}
		active := c.parts(now)
		if len(active) == 0 {
			continue
		}
		room := pl.roomLocked(c, now)
		if room <= 0 {
			continue
		}
		for _, p := range active {
			p.room = room
			parts = append(parts, p)
		}
	}
	return parts
}

// roomLocked returns how many messages of a consumer to claim.
func (pl *planner) roomLocked(c *consumer, now time.Time) int {
	waiting, s := c.waiting+c.reserved, pl.capacity.mayStart(c, now)
	room := min(pl.capacity.starts(c), s.n) * c.group
	_, open := c.circuit.NextProbe()
	switch {
	case open:
		room = s.n // a probe
	case c.limiter != nil && len(c.limiter.slots) == 0: // other processes may have all
	case c.rate != nil: // claimed messages are to start at once, or soon
		room += min(c.finished.lastSecond(now), c.rate.In(rateAhead))
	default:
		room += c.finished.lastSecond(now)
	}
	room -= waiting
	fills := c.settings.BatchWait > 0 && c.waiting < c.group && !open // its batch waits for more
	switch {
	case room <= 0 && waiting == 0 && pl.capacity.crowdedOut(c, now):
		return pl.aheadLocked(c, open)
	case room < waiting && !fills:
		return 0
	}
	return room
}

// aheadLocked returns how many messages to claim of a consumer that is crowded out: queued, they have
// the next place in turn.
func (pl *planner) aheadLocked(c *consumer, open bool) int {
	switch {
	case c.limiter != nil && len(c.limiter.slots) == 0: // a process with a free worker may take them meanwhile
		pl.capacity.askForSlots()
		return 0
	case open, c.rate != nil, c.settings.KeyRate > 0: // one probes, and a claim spends the rate
		return 1
	}
	return c.group
}

// distribute divides the budget among parts with free capacity, in equal shares.
func distribute(parts []part, budget int) {
	for budget > 0 {
		// Each part with free capacity gets an equal share of the rest, at least one.
		open := 0
		for _, p := range parts {
			if p.room > p.asked {
				open++
			}
		}
		if open == 0 {
			return
		}
		share := max(budget/open, 1)
		for i := range parts {
			give := min(share, parts[i].room-parts[i].asked, budget)
			parts[i].asked += give
			budget -= give
		}
	}
}

func (pl *planner) writePlanLocked(parts []part, maxBytes int, now time.Time) claimPlan {
	first := parts[0].consumer
	plan := claimPlan{request: store.ClaimRequest{
		Select: store.Clean, MaxBytes: max(maxBytes, 0), Rate: first.rate, Unused: first.unused, Ageing: first.settings.Aging,
	}}
	first.unused = 0
	pl.asked += plan.request.MaxBytes
	for _, p := range parts {
		if p.asked == 0 {
			continue
		}
		p.reserved += p.asked
		pl.reserved += p.asked
		plan.parts = append(plan.parts, p)
		plan.request.Limit += p.asked // former names and payload types share it
		if p.plainFirst = p.lanes != nil; p.plainFirst {
			plan.request.Lanes = p.lanes.request(now, p.asked)
			continue
		}
		for _, want := range p.wants {
			w := pl.catalog.wants[want]
			w.Limit, w.After = p.asked, pl.pollState.cursors[want].start
			plan.request.Wants, plan.drops = append(plan.request.Wants, w), append(plan.drops, pl.pollState.cursors[want].drops)
		}
	}
	return plan
}
