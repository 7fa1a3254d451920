package engine

import (
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/handoff"
)

// maxOvertaking is how long a message that waits for a claim may be overtaken by ones that are handed
// off. Then they wait for claims, too, until one has found everything there was before it.
const maxOvertaking = 20 * time.Millisecond

// admit keeps room for messages of a transaction that may start as soon as it commits. It returns
// these with their consumers, and the others.
func (d *dispatcher) admit(messages []handoff.Message) (admitted []handoff.Message, consumers []*consumer, rest []handoff.Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for _, m := range messages {
		c := d.catalog.byName[m.ConsumerType]
		if c == nil || c.Name() != m.ConsumerType || !d.admitsLocked(c, len(m.Payload)+len(m.Headers), now) {
			rest = append(rest, m)
			continue
		}
		admitted, consumers = append(admitted, m), append(consumers, c)
		c.arriving++
		d.capacity.arriving++
		d.capacity.held += len(m.Payload) + len(m.Headers)
	}
	return admitted, consumers, rest
}

// admitsLocked reports whether a message of a consumer could start at once, and overtakes none that
// has waited for long. What a limit, a rate, a key, a priority, an open circuit or a crash decides is
// decided by a claim.
func (d *dispatcher) admitsLocked(c *consumer, bytes int, now time.Time) bool {
	if d.queue.closed || c.limiter != nil || c.rate != nil || c.lanes != nil || access.Keyed(&c.settings) || c.settings.Aging > 0 {
		return false
	}
	if _, open := c.circuit.NextProbe(); open || now.Before(c.notBefore) {
		return false
	}
	if !d.quarantine.idle() || c.suspects != 0 || len(d.capacity.abandoned) > 0 {
		return false
	}
	if c.active && now.Sub(c.clear) > maxOvertaking {
		return false
	}
	cp := &d.capacity
	if cp.held+bytes > maxHeldBytes || cp.queued+cp.arriving >= cp.config.Concurrency-cp.running {
		return false
	}
	return min(cp.starts(c), cp.startable(c, now).n) > c.waiting+c.arriving
}

// arrived gives back the room of admitted messages, which were queued or will not come.
func (d *dispatcher) arrived(messages []handoff.Message, consumers []*consumer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, m := range messages {
		consumers[i].arriving--
		d.capacity.arriving--
		d.capacity.held -= len(m.Payload) + len(m.Headers)
	}
}
