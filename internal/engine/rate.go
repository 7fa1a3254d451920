package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// rateAhead is for how long messages may wait for a worker whose start the rate has counted.
const rateAhead = 25 * time.Millisecond

// spent adds up for how long a rate kept a process from claiming.
type spent struct {
	mu       sync.Mutex
	sum      time.Duration // but for the last time
	from, to time.Time     // the last time, which may not be over
}

// hold begins a time, and so ends the one before.
func (s *spent) hold(now, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum, s.from, s.to = s.atLocked(now), now, until
}

// until is the sum up to now.
func (s *spent) until(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.atLocked(now)
}

func (s *spent) atLocked(now time.Time) time.Duration {
	if now.After(s.to) {
		now = s.to
	}
	return s.sum + max(now.Sub(s.from), 0)
}

// stopSpending ends the times that are not over, since the run is.
func (d *dispatcher) stopSpending(now time.Time) {
	for _, c := range d.consumers {
		if c.spent != nil {
			c.spent.hold(now, now)
		}
	}
}

// unstarted notes that a message was claimed and did not start, so that its consumer's rates have been used for
// nothing: the next claim gives that back.
func (d *dispatcher) unstarted(t *task) {
	c := t.consumer
	if c.rate == nil && c.settings.KeyRate == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.rate != nil {
		if c.unused++; c.failures == 0 {
			c.notBefore = time.Time{}
		}
		c.activate()
	}
	for _, l := range c.lanes {
		l.notBefore = time.Time{}
		if l.KeyRate != nil && t.row.Lane != 0 && l.Name == t.row.ConsumerType {
			l.unused[t.row.Lane]++
			l.free([]int64{t.row.Lane}, d.config.BatchSize)
		}
	}
	d.room.Signal()
}

// unusedLocked keeps what a claim was to give back to rates, and did not.
func (d *dispatcher) unusedLocked(o order) {
	if len(o.parts) == 0 {
		return
	}
	p := o.parts[0]
	p.consumer.unused += o.request.Unused
	if p.lanes != nil {
		for lane, n := range o.request.Lanes.Unused {
			p.lanes.unused[lane] += n
		}
	}
}

// ofFirst has a request ask for what is due first, when that is of a consumer with a rate or
// priorities, or of batches, and else for nothing of such.
func (d *dispatcher) ofFirst(request *store.ClaimRequest, probe store.Probe) {
	first := 0
	for i := range probe.First {
		if probe.First[i].Before(probe.First[first]) {
			first = i
		}
	}
	c := d.byName[request.Wants[first].Consumer]
	request.Rate, request.Ageing = c.rate, c.settings.Aging
	alone := func(c *consumer) bool { return c.rate != nil || c.Prioritizes() || c.settings.BatchSize > 0 }
	request.Wants = slices.DeleteFunc(request.Wants, func(w store.Want) bool {
		other := d.byName[w.Consumer]
		return alone(c) && other != c || !alone(c) && alone(other)
	})
	if _, closed := c.circuit.NextProbe(); c.settings.BatchSize == 0 || closed { // one message probes
		return
	}
	request.Limit = c.settings.BatchSize
	for i := range request.Wants {
		request.Wants[i].Limit = request.Limit
	}
}
