package outbox

import (
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// orderLocked decides what to claim next: messages that have crashed, or for every
// active consumer its share of the room. They take turns where both wait.
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
	var wants []store.Want
	for i, want := range d.wants {
		c := d.owner[i]
		if now.Before(d.oneByOneUntil) && c != d.consumers[d.suspectTurn%len(d.consumers)] {
			continue
		}
		if closed, probes := d.gateLocked(c); closed && !probes {
			continue
		}
		if d.hasRoomLocked(c) || c.running == d.config.Concurrency { // which is everybody's limit
			wants = append(wants, want)
		}
	}
	return d.quarantine.order(wants, d.config.Concurrency-d.running, now)
}

// orderCleanLocked asks for messages that have not crashed.
func (d *dispatcher) orderCleanLocked(now time.Time) (order, bool) {
	left := maxHeldBytes - d.held - d.asked
	if !d.activeLocked() || left <= 0 && d.running+d.queued+d.reserved > 0 {
		return order{}, false
	}
	// Each loop may hold one batch that has not started. Small claims are not
	// worth their round trips while there is still something to run.
	batch, queued := d.batchLocked(now), d.queued-d.quarantine.queued
	budget := min(batch, batch*d.config.ClaimLoops-queued-d.reserved)
	if budget <= 0 || queued > 0 && budget < max(batch/4, 1) {
		return order{}, false
	}
	consumers, rooms := apart(d.roomsLocked(now))
	total := 0
	for _, room := range rooms {
		total += room
	}
	if len(consumers) > 1 && now.Before(d.oneByOneUntil) {
		consumers, rooms, total = consumers[:1], rooms[:1], rooms[0]
	}
	if total == 0 {
		return order{}, false
	}
	return d.writeOrderLocked(consumers, deal(rooms, budget), min(left, maxClaimBytes)), true
}

// apart leaves a consumer with a rate alone in its claim, which is for what the rate allows.
// Each has its turn.
func apart(consumers []*consumer, rooms []int) ([]*consumer, []int) {
	if len(consumers) > 0 && consumers[0].rate != nil {
		return consumers[:1], rooms[:1]
	}
	n := 0
	for i, c := range consumers {
		if c.rate == nil {
			consumers[n], rooms[n] = c, rooms[i]
			n++
		}
	}
	return consumers[:n], rooms[:n]
}

// slowBatch is the most that a claim takes while little is done in a second.
const slowBatch = 500

// batchLocked is the most that a claim takes now: a part of what was finished in the last
// second that takes less than settleDelay, so that claims end as a whole, which costs least.
func (d *dispatcher) batchLocked(now time.Time) int {
	finished := 0
	for _, c := range d.consumers {
		finished += c.finished.lastSecond(now)
	}
	return min(max(finished/32, slowBatch), d.config.BatchSize)
}

// startsLocked is how many messages of a consumer may start now, as far as others
// are concerned: a consumer leaves as many workers free as it keeps busy, up to an
// eighth of them. The others find a free one then, and whoever runs little the first.
func (d *dispatcher) startsLocked(c *consumer) int {
	free := d.config.Concurrency - d.running
	if len(d.consumers) == 1 {
		return max(free, 0)
	}
	share := max(d.config.Concurrency/8, 1)
	return max(free-share, (free-c.running+1)/2, 0)
}

// roomsLocked returns the active consumers, starting with the next in turn, and
// how many messages each has room for: as many as there are free workers, plus
// what it finished in the last second, since that is what it will need next. One that has
// more than that waiting, or coming, needs no claim yet.
func (d *dispatcher) roomsLocked(now time.Time) ([]*consumer, []int) {
	d.turn++
	var consumers []*consumer
	var rooms []int
	for i := range d.consumers {
		c := d.consumers[(d.turn+i)%len(d.consumers)]
		if !c.active || now.Before(c.notBefore) {
			continue
		}
		waiting := len(c.queue) + c.reserved
		if closed, probes := d.gateLocked(c); closed {
			if probes && waiting == 0 {
				consumers, rooms = append(consumers, c), append(rooms, 1)
			}
			continue
		}
		room := min(d.startsLocked(c), d.limit(c)-c.running) * c.group
		if c.rate != nil {
			room = max(room, c.rate.In(rateAhead)) // what is claimed is to start at once, or soon
		} else {
			room += c.finished.lastSecond(now)
		}
		room -= waiting
		fills := c.settings.BatchWait > 0 && len(c.queue) < c.group // it waits for more
		if room > 0 && (room >= waiting || fills) {
			consumers, rooms = append(consumers, c), append(rooms, room)
		}
	}
	return consumers, rooms
}

// deal hands out the budget one by one, round and round, to those with room.
func deal(rooms []int, budget int) []int {
	shares := make([]int, len(rooms))
	for budget > 0 {
		// Everybody with room left gets an equal part of what is left, at least one.
		open := 0
		for i := range rooms {
			if rooms[i] > shares[i] {
				open++
			}
		}
		if open == 0 {
			break
		}
		part := max(budget/open, 1)
		for i := range rooms {
			give := min(part, rooms[i]-shares[i], budget)
			shares[i] += give
			budget -= give
		}
	}
	return shares
}

func (d *dispatcher) writeOrderLocked(consumers []*consumer, shares []int, maxBytes int) order {
	o := order{request: store.ClaimRequest{Select: store.Clean, MaxBytes: max(maxBytes, 0), Rate: consumers[0].rate}}
	d.asked += o.request.MaxBytes
	for i, c := range consumers {
		if shares[i] == 0 {
			continue
		}
		c.reserved += shares[i]
		d.reserved += shares[i]
		o.parts = append(o.parts, part{consumer: c, asked: shares[i], wakeups: c.wakeups})
		for _, want := range c.wants {
			w := d.wants[want]
			w.Limit, w.After = shares[i], d.cursors[want].start
			o.request.Wants = append(o.request.Wants, w)
		}
		o.request.Limit += shares[i] // former names and payload types share it
	}
	return o
}
