package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// rateAhead is how long messages that a rate has counted may wait for a worker.
const rateAhead = 25 * time.Millisecond

// spent sums up how long a rate kept a process from claiming.
type spent struct {
	mu       sync.Mutex
	sum      time.Duration // without the last period
	from, to time.Time     // the last period, which may not be over
}

// hold begins a period and ends the one before.
func (s *spent) hold(now, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum, s.from, s.to = s.atLocked(now), now, until
}

// until returns the sum up to now.
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

// stopSpending ends open periods, since the run is over.
func (d *dispatcher) stopSpending(now time.Time) {
	for _, c := range d.consumers {
		if c.spent != nil {
			c.spent.hold(now, now)
		}
	}
}

// unstarted notes that a claimed message did not start, so its consumer's rates counted it in vain.
// The next claim returns that to the rates.
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

// unusedLocked keeps what a failed claim was to return to rates.
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

// ofFirst narrows a request to the consumer whose message is due first, if it has a rate,
// priorities or batches. Otherwise it leaves such consumers out.
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
	if _, closed := c.circuit.NextProbe(); c.settings.BatchSize == 0 || closed { // a probe is one message
		return
	}
	request.Limit = c.settings.BatchSize
	for i := range request.Wants {
		request.Wants[i].Limit = request.Limit
	}
}
