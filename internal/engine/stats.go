package engine

import (
	"cmp"
	"sync/atomic"
	"time"
)

// Stats has the fields of outbox.Stats, which documents them.
type Stats struct {
	Claims        int64
	EmptyClaims   int64
	Claimed       int64
	Fenced        int64
	Recovered     int64
	Crashed       int64
	Abandoned     int64
	CrashPoisoned int64
	Uncounted     int64
	Unkeyed       int64
	Running       int
	Queued        int
	Limit         int
	Unsettled     int
	Circuits      map[string]bool
	Limits        map[string]LimitStats
	RatesSpent    map[string]time.Duration
}

// LimitStats is this process's share of a limit.
type LimitStats struct {
	Slots int
	Used  int
	Max   int
}

// counters add up over all runs of a processor.
type counters struct {
	claims, emptyClaims, claimed, fenced, recovered, crashed, crashPoisoned, abandoned, unkeyed atomic.Int64
}

// Stats returns what the processor has done and is doing. It does not touch the database.
func (p *Processor) Stats() Stats {
	if p == nil {
		return Stats{}
	}
	c := &p.counters
	stats := Stats{
		Claims: c.claims.Load(), EmptyClaims: c.emptyClaims.Load(), Claimed: c.claimed.Load(), Fenced: c.fenced.Load(),
		Recovered: c.recovered.Load(), Crashed: c.crashed.Load(), CrashPoisoned: c.crashPoisoned.Load(),
		Abandoned: c.abandoned.Load(), Uncounted: p.uncounted.total.Load(), Unkeyed: c.unkeyed.Load(),
		Limit: p.config.Concurrency,
	}
	for _, c := range p.consumers {
		if c.rateWaits != nil {
			put(&stats.RatesSpent, c.Name(), c.rateWaits.total(time.Now()))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil {
		stats.Running, stats.Queued = p.current.dispatcher.queue.load()
		stats.Unsettled = p.current.ledger.unsettled()
		stats.Circuits, stats.Limits = p.current.dispatcher.bounds()
	}
	return stats
}

// bounds returns circuits by their consumers, and limits.
func (d *dispatcher) bounds() (circuits map[string]bool, limits map[string]LimitStats) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.catalog.consumers {
		if c.circuit != nil {
			_, _, open := c.circuit.Tripped()
			put(&circuits, c.Name(), open)
		}
	}
	for _, l := range d.limiters.all {
		put(&limits, l.shownName(), LimitStats{Slots: len(l.slots), Used: l.running, Max: l.limit})
	}
	return circuits, limits
}

// shownName returns the name of a limit as its consumers have it.
func (l *limiter) shownName() string {
	c := l.consumers[0]
	return cmp.Or(c.settings.SharedConcurrency, c.Name())
}

// put adds an entry, and makes the map for the first one.
func put[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = make(map[string]V)
	}
	(*m)[key] = value
}
