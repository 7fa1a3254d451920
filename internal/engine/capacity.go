package engine

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// capacity is what runs and waits in this process, and what of it may start. It is guarded by
// dispatcher.mu.
type capacity struct {
	config      *ProcessorConfig
	consumers   []*consumer
	quarantine  *quarantine
	slotsWanted chan struct{} // of size 1: a message waits for a slot

	running   int
	runningTx int      // running transactional consumers
	queued    int      // claimed, not started
	arriving  int      // claimed by producers whose transactions have not ended
	held      int      // bytes of messages that are queued or run
	abandoned []string // consumers of handlers that ignored their timeout; with too many nothing is claimed
}

// startable is what a consumer could start now.
type startable struct {
	n     int       // how many messages, as far as the consumer is concerned
	slots bool      // none, only because its limit has no free slot
	until time.Time // none before then, unless something changes; zero if unknown
}

// startable returns how many messages of a consumer could start now, as the free workers, its
// circuit, its concurrency, that of transactions and its limit allow. Everything that claims,
// starts, probes, keeps slots, keeps places or waits uses it. [capacity.starts] decides which
// workers are free in view of the other consumers.
func (cp *capacity) startable(c *consumer, now time.Time) (s startable) {
	s.n = cp.free(c)
	if probe, open := c.circuit.NextProbe(); open {
		s.n = min(s.n, 1)
		if now.Before(probe) {
			return startable{until: probe}
		}
	}
	if s.n > 0 && c.limiter != nil {
		s.n = min(s.n, cp.freeSlots(c.limiter, now))
		if s.n <= 0 {
			return startable{slots: true}
		}
	}
	s.n = max(s.n, 0)
	return s
}

// mayStart is startable for callers that would start or claim now. It also asks for slots.
func (cp *capacity) mayStart(c *consumer, now time.Time) startable {
	s := cp.startable(c, now)
	if s.slots {
		cp.askForSlots()
	}
	return s
}

// free returns how many more messages a consumer may run in this process: for each it needs a worker.
func (cp *capacity) free(c *consumer) int {
	n := cp.config.Concurrency - cp.running
	if c.settings.Concurrency > 0 {
		n = min(n, c.settings.Concurrency-c.running)
	}
	if c.transactional {
		n = min(n, cp.config.TxConcurrency-cp.runningTx)
	}
	return n
}

// freeSlots returns how many more calls the limit allows here.
func (cp *capacity) freeSlots(l *limiter, now time.Time) int {
	return l.valid(now, cp.config.LeaseDuration) - l.running - l.owed
}

// shares reports whether two consumers compete for slots of a limit or for transactions.
func shares(c, other *consumer) bool {
	return c.limiter != nil && other.limiter == c.limiter || c.transactional && other.transactional
}

// crowdedOut reports whether others have most of the workers, transactions or slots that they share with
// a consumer, none is free, and they claim ahead: they would take each as soon as it is free.
func (cp *capacity) crowdedOut(c *consumer, now time.Time) bool {
	if probe, open := c.circuit.NextProbe(); open && now.Before(probe) {
		return false
	}
	return cp.crowded(c, now)
}

// crowded is crowdedOut without regard to the consumer's circuit.
func (cp *capacity) crowded(c *consumer, now time.Time) bool {
	if c.settings.Concurrency > 0 && c.running >= c.settings.Concurrency {
		return false
	}
	mostly := func(used int) bool { return 2*c.running < used }
	workers := cp.running >= cp.config.Concurrency && mostly(cp.running)
	places := c.transactional && cp.runningTx >= cp.config.TxConcurrency && mostly(cp.runningTx)
	slots := c.limiter != nil && cp.freeSlots(c.limiter, now) <= 0 && mostly(c.limiter.running)
	return slices.ContainsFunc(cp.consumers, func(other *consumer) bool {
		return other != c && (workers || (places || slots) && shares(c, other)) && other.finished.lastSecond(now) > 0
	})
}

// askForSlots wakes the slot keeper.
func (cp *capacity) askForSlots() {
	select {
	case cp.slotsWanted <- struct{}{}:
	default:
	}
}

// starts returns how many messages of a consumer may start now in view of the others. A
// consumer leaves as many workers free as it keeps busy, up to an eighth of them. So the others
// find a free one, those that run little first.
func (cp *capacity) starts(c *consumer) int {
	free := cp.config.Concurrency - cp.running
	if len(cp.consumers) == 1 {
		return max(free, 0)
	}
	share := max(cp.config.Concurrency/8, 1)
	return max(free-share, (free-c.running+1)/2, 0)
}

// waits reports whether a consumer has work that could start now, or could with a slot of its
// limit. One that is crowded out needs its slot to have the next place in turn.
func (cp *capacity) waits(c *consumer, now time.Time) bool {
	s := cp.startable(c, now)
	has, _ := c.hasWork(now)
	return has && (s.n > 0 || s.slots || cp.crowdedOut(c, now))
}

// nextStart returns how long until a consumer may start or claim work, or more of it, or zero if
// that is unknown.
func (cp *capacity) nextStart(now time.Time) (wait time.Duration) {
	for _, c := range cp.consumers {
		has, more := c.hasWork(now)
		if !has && more.IsZero() {
			continue
		}
		until := cp.startable(c, now).until
		if !has || until.IsZero() {
			until = later(more, until)
		}
		if left := until.Sub(now); left > 0 && (wait == 0 || left < wait) {
			wait = left
		}
	}
	return wait
}

// mayStartCrashed reports whether a consumer may start one of its crashed messages of a kind.
func (cp *capacity) mayStartCrashed(kind suspicion, now time.Time) bool {
	return slices.ContainsFunc(cp.consumers, func(c *consumer) bool { return c.suspects&kind != 0 && cp.mayStart(c, now).n > 0 })
}

// nextCrashed returns the kind of crashed messages to claim next. One that nothing may start does not
// keep the other waiting.
func (cp *capacity) nextCrashed(now time.Time) store.Selection {
	if !cp.quarantine.pending() {
		return store.Clean
	}
	return cp.quarantine.next(now, cp.mayStartCrashed(crashedOnce, now), cp.mayStartCrashed(crashedMore, now))
}

// keptForCrashed returns how many of a consumer's startable messages are reserved for crashed ones,
// so that an endless backlog does not delay them: the last, if a crashed message could start in its
// place.
func (cp *capacity) keptForCrashed(c *consumer, now time.Time) int {
	kind := cp.quarantine.asked()
	if kind == 0 {
		kind = suspicionOf(cp.nextCrashed(now))
	}
	lastWorker := cp.running >= cp.config.Concurrency-1
	if kind != 0 && slices.ContainsFunc(cp.consumers, func(other *consumer) bool {
		return other.suspects&kind != 0 && (other == c || lastWorker || shares(c, other)) && cp.startable(other, now).n > 0
	}) {
		return 1
	}
	return 0
}

// enqueued counts messages that wait for a worker and the bytes of held messages.
func (cp *capacity) enqueued(t *task, n, bytes int) {
	t.consumer.waiting += n
	cp.queued += n
	cp.held += bytes
}
