package engine

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// orderLocked decides what to claim next: crashed messages, or for each active consumer its share
// of the room. If both wait, they take turns.
func (d *dispatcher) orderLocked(now time.Time) (order, bool) {
	if len(d.abandoned) >= d.config.Concurrency {
		return order{}, false
	}
	if !d.quarantine.served {
		if o, ok := d.orderSuspectsLocked(now); ok {
			d.quarantine.served = true
			return o, true
		}
	}
	if o, ok := d.orderCleanLocked(now); ok {
		d.quarantine.served = false
		return o, true
	}
	if !d.quarantine.served {
		return order{}, false
	}
	return d.orderSuspectsLocked(now)
}

// orderSuspectsLocked asks for crashed messages of consumers that may start one.
func (d *dispatcher) orderSuspectsLocked(now time.Time) (order, bool) {
	if !d.quarantine.pending() {
		return order{}, false
	}
	kind := d.quarantine.next(now, d.soloLocked(now))
	var asked []*consumer
	for i := range d.consumers {
		c := d.consumers[(d.suspectTurn+i)%len(d.consumers)]
		if c.suspects&suspicionOf(kind) != 0 && d.mayStartLocked(c, now).n > 0 {
			asked = append(asked, c)
		}
	}
	if len(asked) > 1 && now.Before(d.oneByOneUntil) {
		asked = asked[:1]
	}
	var wants []store.Want
	for i, want := range d.wants {
		if slices.Contains(asked, d.owner[i]) {
			wants = append(wants, want)
		}
	}
	o, ok := d.quarantine.order(kind, wants, d.config.Concurrency-d.running)
	o.request.Stuck = d.stuckLocked(func(c *consumer) bool { return slices.Contains(asked, c) })
	return o, ok
}

// orderCleanLocked asks for messages that have not crashed.
func (d *dispatcher) orderCleanLocked(now time.Time) (order, bool) {
	left := maxHeldBytes - d.held - d.asked
	if !d.activeLocked() {
		return order{}, false
	}
	// Each loop may hold one batch that has not started. Small claims are not
	// worth their round trips while there is still something to run.
	batch, queued := d.batchLocked(now), d.queued-d.quarantine.queued
	budget := min(batch, batch*d.config.Fetchers-queued-d.reserved)
	if budget <= 0 || queued > 0 && budget < max(batch/4, 1) {
		return order{}, false
	}
	parts := d.roomsLocked(now)
	if left <= 0 { // what runs is large: a consumer that holds nothing may still get one message
		parts, budget = withNothing(parts), 1
	}
	parts = apart(parts)
	if len(parts) > 1 && now.Before(d.oneByOneUntil) {
		parts = parts[:1]
	}
	if len(parts) == 0 {
		return order{}, false
	}
	if parts[0].lanes != nil { // a claim for lanes is for one consumer, so it may bring more
		budget = min(2*budget, d.config.BatchSize)
	}
	d.claimTurn++
	deal(parts, budget)
	return d.writeOrderLocked(parts, min(left, maxClaimBytes), now), true
}

// withNothing returns the parts of consumers that hold no message.
func withNothing(parts []part) []part {
	return slices.DeleteFunc(parts, func(p part) bool { return p.running+p.waiting+p.reserved > 0 })
}

// apart leaves a consumer with a rate alone in its claim, which is for what the rate allows. Keyed
// and prioritized messages, which are claimed differently, are alone, too. Each has its turn.
func apart(parts []part) []part {
	alone := func(p part) bool { return p.rate != nil || p.lanes != nil || p.Prioritizes() }
	if len(parts) > 0 && alone(parts[0]) {
		return parts[:1]
	}
	return slices.DeleteFunc(parts, alone)
}

// slowBatch bounds a claim while few messages finish in a second.
const slowBatch = 500

// batchLocked returns the most that a claim takes now: a share of what finished in the last second
// that takes less than settleDelay. Claims then end as a whole, which costs least.
func (d *dispatcher) batchLocked(now time.Time) int {
	finished := 0
	for _, c := range d.consumers {
		finished += c.finished.lastSecond(now)
	}
	return min(max(finished/32, slowBatch), d.config.BatchSize)
}

// startsLocked returns how many messages of a consumer may start now in view of the others. A
// consumer leaves as many workers free as it keeps busy, up to an eighth of them. So the others
// find a free one, those that run little first.
func (d *dispatcher) startsLocked(c *consumer) int {
	free := d.config.Concurrency - d.running
	if len(d.consumers) == 1 {
		return max(free, 0)
	}
	share := max(d.config.Concurrency/8, 1)
	return max(free-share, (free-c.running+1)/2, 0)
}

// roomsLocked returns parts for the active consumers, starting with the next in turn, and the room
// of each: the free workers, plus what it finished in the last second, since it will need that
// next. A consumer with more than that waiting or coming needs no claim yet.
func (d *dispatcher) roomsLocked(now time.Time) (parts []part) {
	for i := range d.consumers {
		c := d.consumers[(d.claimTurn+i)%len(d.consumers)]
		if now.Before(c.notBefore) {
			continue
		}
		active := d.activePartsLocked(c, now)
		if len(active) == 0 {
			continue
		}
		room := d.roomLocked(c, now)
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
func (d *dispatcher) roomLocked(c *consumer, now time.Time) int {
	waiting, s := c.waiting+c.reserved, d.mayStartLocked(c, now)
	if _, closed := c.circuit.NextProbe(); closed {
		return max(s.n-waiting, 0)
	}
	room := min(d.startsLocked(c), s.n) * c.group
	switch {
	case c.rate != nil:
		room = max(room, c.rate.In(rateAhead)) // claimed messages are to start at once, or soon
	case c.limiter != nil && len(c.limiter.slots) == 0: // other processes may have all
	default:
		room += c.finished.lastSecond(now)
	}
	room -= waiting
	fills := c.settings.BatchWait > 0 && c.waiting < c.group // its batch waits for more
	if room < waiting && !fills {
		return 0
	}
	return room
}

// activePartsLocked returns parts for what may be claimed of a consumer: messages without keys and
// with keys, which take turns to be first.
func (d *dispatcher) activePartsLocked(c *consumer, now time.Time) (parts []part) {
	for _, l := range c.lanes {
		if ready, _ := l.pending(now); ready {
			parts = append(parts, l.part())
		}
	}
	if c.active {
		parts = append(parts, part{consumer: c, wakeups: c.wakeups})
	}
	if len(parts) > 1 && c.plainFirst {
		slices.Reverse(parts)
	}
	return parts
}

// deal hands out the budget to parts with room, in equal shares.
func deal(parts []part, budget int) {
	for budget > 0 {
		// Each part with room gets an equal share of the rest, at least one.
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

func (d *dispatcher) writeOrderLocked(parts []part, maxBytes int, now time.Time) order {
	o := order{request: store.ClaimRequest{Select: store.Clean, MaxBytes: max(maxBytes, 0), Rate: parts[0].rate, Unused: parts[0].unused, Ageing: parts[0].settings.Aging}}
	parts[0].consumer.unused = 0
	d.asked += o.request.MaxBytes
	for _, p := range parts {
		if p.asked == 0 {
			continue
		}
		p.reserved += p.asked
		d.reserved += p.asked
		o.parts = append(o.parts, p)
		o.request.Limit += p.asked // former names and payload types share it
		if p.plainFirst = p.lanes != nil; p.plainFirst {
			o.request.Lanes = p.lanes.request(now, p.asked)
			continue
		}
		for _, want := range p.wants {
			w := d.wants[want]
			w.Limit, w.After = p.asked, d.cursors[want].start
			o.request.Wants, o.drops = append(o.request.Wants, w), append(o.drops, d.cursors[want].drops)
		}
	}
	return o
}
