package engine

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/heartbeat"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// consumer is a registered consumer with its resolved settings and its state in the dispatcher.
type consumer struct {
	bus.Consumer
	settings      bus.ConsumerConfig
	tally         *heartbeat.Tally
	version       string // of the program, if the consumer keeps its messages
	transactional bool
	group         int           // how many messages may run together
	circuit       *flow.Circuit // nil if it has none
	breaker       *breaker      // nil if it has none; its circuit is the consumer's
	limiter       *limiter
	rate          *store.Rate // nil if it has none
	rateWaits     *rateWaits  // of its rate
	wants         []int       // indexes of its wants

	// Guarded by dispatcher.mu.
	queue      []*task
	waiting    int       // messages in the queue
	running    int       // a group counts once
	reserved   int       // asked for by claims in flight
	arriving   int       // claimed by producers whose transactions have not ended
	active     bool      // may have messages to claim
	wakeups    int       // counts activations, to notice one during a claim
	clear      time.Time // while active: what was committed before has been claimed; zero: unknown
	suspects   suspicion // which kinds of its crashed messages are to be claimed
	finished   throughput
	lanes      []*lanes      // where it has messages with keys
	unused     int           // messages that its rate counted and that did not start
	plainFirst bool          // messages without keys come first in the next claim
	perMessage time.Duration // how long a message of a sequence takes; 0: unknown

	fillsUntil time.Time // when workers look again for a batch that is not full

	announced bool      // a commit was announced, and no claim has come back since
	expected  time.Time // until then a message may be committed unannounced
	failures  int       // of claims for it alone, in a row
	notBefore time.Time // no claims for it before then
}

func (c *consumer) keyConcurrency() int { return access.KeyConcurrency(&c.settings) }

func (c *consumer) activate() {
	if !c.active {
		c.clear = time.Time{} // there may be messages of any age
	}
	c.active, c.wakeups = true, c.wakeups+1
}

// pending reports whether the consumer may have messages to claim.
func (c *consumer) pending() bool {
	return c.active || slices.ContainsFunc(c.lanes, func(l *lanes) bool { return l.active })
}

// hasWork reports whether a consumer has something to start or claim now. more is when the next of
// what it may not claim yet may be claimed, whatever else waits; zero: not before something changes.
func (c *consumer) hasWork(now time.Time) (has bool, more time.Time) {
	has = len(c.queue) > 0 || c.suspects != 0
	note := func(at time.Time) {
		switch {
		case !now.Before(at):
			has = true
		case more.IsZero() || at.Before(more):
			more = at
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
	return has, more
}

// parts returns parts for what may be claimed of a consumer: messages without keys and
// with keys, which take turns to be first.
func (c *consumer) parts(now time.Time) (parts []part) {
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

// exhausted reports whether more messages exist, but their keys may run no more at once. A batch
// does not wait for them.
func (c *consumer) exhausted(now time.Time) bool {
	return slices.ContainsFunc(c.lanes, func(l *lanes) bool {
		ready, _ := l.pending(now)
		return l.bounded() && l.left && !ready
	})
}

// sequenceLength returns how many messages of one key may be claimed together.
func (c *consumer) sequenceLength(limit int) int {
	switch {
	case c.keyConcurrency() > 0: // they do not depend on each other
		return min(c.keyConcurrency(), limit)
	case c.group > 1: // they share a transaction
		return min(c.group, limit)
	case c.perMessage == 0:
		return min(firstSequence, limit)
	case c.perMessage*time.Duration(limit) < maxSequence:
		return limit
	}
	return max(int(maxSequence/c.perMessage), 1)
}

// measured notes the approximate duration of each message of a sequence.
func (c *consumer) measured(n int, took time.Duration) {
	if n == 0 {
		return
	}
	each := max(took/time.Duration(n), 1)
	if c.perMessage == 0 {
		c.perMessage = each
	}
	c.perMessage = (3*c.perMessage + each) / 4
}
