package engine

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// startable is what a consumer could start now.
type startable struct {
	n     int       // how many messages, as far as the consumer is concerned
	slots bool      // none, only because its limit has no free slot
	until time.Time // none before then, unless something changes; zero if unknown
}

// startableLocked returns how many messages of a consumer could start now, as its circuit, its
// concurrency, that of transactions and its limit allow. Everything that claims, starts, probes,
// keeps slots or waits uses it. [dispatcher.startsLocked] decides whether a worker is free, in view
// of the other consumers.
func (d *dispatcher) startableLocked(c *consumer, now time.Time) (s startable) {
	s.n = d.capacityLocked(c)
	if probe, closed := c.circuit.NextProbe(); closed {
		if s.n = min(s.n, 1); now.Before(probe) {
			return startable{until: probe}
		}
	}
	if s.n > 0 && c.limiter != nil {
		if s.n = min(s.n, d.freeSlotsLocked(c.limiter, now)); s.n <= 0 {
			return startable{slots: true}
		}
	}
	s.n = max(s.n, 0)
	return s
}

// mayStartLocked is startableLocked for callers that would start or claim now. It also asks for
// slots.
func (d *dispatcher) mayStartLocked(c *consumer, now time.Time) startable {
	s := d.startableLocked(c, now)
	if s.slots {
		d.askForSlots()
	}
	return s
}

// capacityLocked returns how many more messages a consumer may run in this process.
func (d *dispatcher) capacityLocked(c *consumer) int {
	n := d.config.Concurrency - c.running
	if c.settings.Concurrency > 0 {
		n = min(n, c.settings.Concurrency-c.running)
	}
	if c.transactional {
		n = min(n, d.config.TxConcurrency-d.runTx)
	}
	return n
}

// workLocked reports whether a consumer has something to start or claim now, and if not, when it
// may. Zero means not before something changes.
func (d *dispatcher) workLocked(c *consumer, now time.Time) (has bool, until time.Time) {
	if len(c.queue) > 0 || c.suspects != 0 {
		return true, time.Time{}
	}
	note := func(at time.Time) {
		if has = has || !now.Before(at); until.IsZero() || at.Before(until) {
			until = at
		}
	}
	if c.active {
		note(c.notBefore)
	}
	for _, l := range c.lanes {
		if _, at := l.pending(now); l.active {
			note(later(at, c.notBefore))
		}
	}
	if has {
		until = time.Time{}
	}
	return has, until
}

// waitsLocked reports whether a consumer has work that could start now, or could with a slot of its
// limit.
func (d *dispatcher) waitsLocked(c *consumer, now time.Time) bool {
	s := d.startableLocked(c, now)
	has, _ := d.workLocked(c, now)
	return has && (s.n > 0 || s.slots)
}

// laterLocked returns how long until a consumer may start or claim its work, or zero if that is
// unknown.
func (d *dispatcher) laterLocked(now time.Time) (wait time.Duration) {
	for _, c := range d.consumers {
		has, until := d.workLocked(c, now)
		if !has && until.IsZero() {
			continue
		}
		until = later(until, d.startableLocked(c, now).until)
		if left := until.Sub(now); left > 0 && (wait == 0 || left < wait) {
			wait = left
		}
	}
	return wait
}

// couldProbe reports whether a consumer has a message to probe with, if its circuit allowed it.
func (d *dispatcher) couldProbe(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.byName[name]
	has, _ := d.workLocked(c, time.Now())
	return has && d.capacityLocked(c) > 0
}

// suspicion is which messages of a consumer may have crashed.
type suspicion uint8

const (
	crashedOnce suspicion = 1 << iota
	crashedMore
)

func suspicionOf(kind store.Selection) suspicion {
	switch kind {
	case store.Suspects:
		return crashedOnce
	case store.Killers:
		return crashedMore
	}
	return 0
}

// suspectLocked notes which consumers have crashed messages, as a look has found them.
func (d *dispatcher) suspectLocked(p store.Probe) {
	for _, c := range d.consumers {
		c.suspects = 0
	}
	for _, want := range p.Suspects {
		d.owner[want].suspects |= crashedOnce
	}
	for _, want := range p.Killers {
		d.owner[want].suspects |= crashedMore
	}
}

// askedLocked notes that a claim has asked for the crashed messages of some consumers, and whether
// it found all of them. Those of consumers that could not start any wait until they can.
func (d *dispatcher) askedLocked(request store.ClaimRequest, all bool, now time.Time) {
	kind, asked := suspicionOf(request.Select), d.amongLocked(request.Wants)
	left := false
	for _, c := range d.consumers {
		if all && asked(c) {
			c.suspects &^= kind
		}
		left = left || c.suspects&kind != 0
	}
	if left {
		d.quarantine.remain(request.Select, now)
	}
}

// soloLocked reports whether the circuits let a message start that crashed more than once.
func (d *dispatcher) soloLocked(now time.Time) bool {
	return slices.ContainsFunc(d.consumers, func(c *consumer) bool {
		return c.suspects&crashedMore != 0 && d.startableLocked(c, now).until.IsZero()
	})
}

// keptLocked returns how many of a consumer's startable messages are reserved for crashed ones, so
// that an endless backlog does not delay them: one, until they were asked for.
func (d *dispatcher) keptLocked(c *consumer, now time.Time) int {
	kind := crashedMore // the kind whose claim is in flight
	if !d.quarantine.soloAsked {
		if !d.quarantine.pending() {
			return 0
		}
		kind = suspicionOf(d.quarantine.next(now, d.soloLocked(now)))
	}
	shares := func(other *consumer) bool {
		return other == c || c.limiter != nil && other.limiter == c.limiter || c.transactional && other.transactional
	}
	if slices.ContainsFunc(d.consumers, func(other *consumer) bool { return other.suspects&kind != 0 && shares(other) }) {
		return 1
	}
	return 0
}
