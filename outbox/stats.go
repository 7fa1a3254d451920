package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
)

// Stats counts what a processor has done since it was made, and what it does now. Counts are of
// this process alone.
type Stats struct {
	Claims      int64 `json:"claims"`       // claims that brought messages
	EmptyClaims int64 `json:"empty_claims"` // claims that brought none
	Claimed     int64 `json:"claimed"`      // messages claimed
	Fenced      int64 `json:"fenced"`       // results that were void because the claim had been taken away
	Recovered   int64 `json:"recovered"`    // claims of lost processes that were recovered
	Crashed     int64 `json:"crashed"`      // messages whose process was lost, among the recovered
	Abandoned   int64 `json:"abandoned"`    // consumers that ignored their timeout
	// CrashPoisoned counts messages that were poisoned because their processes were lost each time.
	// Those poisoned after a run are not among them: see [Queue], and the metric
	// asyncmonolith.message.settled of package otel.
	CrashPoisoned int64 `json:"crash_poisoned"`

	// Uncounted counts runs of transactional consumers that did not count as an
	// attempt, since they lost a conflict or their connection: see bus.ErrNotCounted.
	Uncounted int64 `json:"uncounted"`
	// Unordered counts messages of ordered consumers that have no key, and so ran in any order: the
	// program that produced them declares the consumer without bus.Ordered.
	Unordered int64 `json:"unordered"`

	Running int `json:"running"` // consumers that run now
	Queued  int `json:"queued"`  // messages claimed that wait for a worker
	Limit   int `json:"limit"`   // the most consumers that may run at once
	// Unsettled is the number of outcomes that were put aside after a failed try to write them,
	// since another transaction has the message locked or the database refuses them.
	Unsettled int `json:"unsettled"`

	// Gates reports, while the processor runs, for each consumer with a [Circuit] or a
	// bus.CircuitBreaker whether that stops it in this process.
	Gates map[string]bool `json:"gates,omitempty"`
	// Limits describes, while the processor runs, each bus.GlobalConcurrency by its name.
	Limits map[string]LimitStats `json:"limits,omitempty"`
	// RatesSpent is, for each consumer with a bus.RateLimit, for how long this process has claimed
	// nothing of it since the rate was spent.
	RatesSpent map[string]time.Duration `json:"-"`
}

// LimitStats is what this process has of a limit.
type LimitStats struct {
	Slots int `json:"slots"` // that it holds
	Used  int `json:"used"`  // in which something runs
	Max   int `json:"max"`   // that there are for all processes together
}

// MarshalJSON implements json.Marshaler. Times are seconds.
func (s Stats) MarshalJSON() ([]byte, error) {
	type plain Stats
	var spent map[string]float64
	for consumer, d := range s.RatesSpent {
		put(&spent, consumer, d.Round(time.Millisecond).Seconds())
	}
	return json.Marshal(struct {
		plain
		RatesSpent map[string]float64 `json:"rates_spent_seconds,omitempty"`
	}{plain(s), spent})
}

// counters add up over all runs of a processor.
type counters struct {
	claims, emptyClaims, claimed, fenced, recovered, crashed, crashPoisoned, abandoned, uncounted, unordered atomic.Int64
}

// Stats returns what the processor has done and is doing. It does not touch the database.
func (p *Processor) Stats() Stats {
	c := &p.counters
	stats := Stats{
		Claims: c.claims.Load(), EmptyClaims: c.emptyClaims.Load(), Claimed: c.claimed.Load(), Fenced: c.fenced.Load(),
		Recovered: c.recovered.Load(), Crashed: c.crashed.Load(), CrashPoisoned: c.crashPoisoned.Load(), Abandoned: c.abandoned.Load(), Uncounted: c.uncounted.Load(), Unordered: c.unordered.Load(),
		Limit: p.config.Concurrency,
	}
	for _, c := range p.consumers {
		if c.spent != nil {
			put(&stats.RatesSpent, c.Name(), c.spent.until(time.Now()))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil {
		stats.Running, stats.Queued = p.current.dispatcher.load()
		stats.Unsettled = p.current.ledger.putAside()
		stats.Gates, stats.Limits = p.current.dispatcher.bounds()
	}
	return stats
}

// bounds returns circuits by their consumers, and limits.
func (d *dispatcher) bounds() (gates map[string]bool, limits map[string]LimitStats) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.consumers {
		if c.gate != nil {
			_, _, closed := c.gate.Tripped()
			put(&gates, c.Name(), closed)
		}
	}
	for _, l := range d.limiters {
		put(&limits, strings.TrimPrefix(l.name, sharedLimit), LimitStats{Slots: len(l.slots), Used: l.running, Max: l.limit})
	}
	return gates, limits
}

// put makes the map for its first entry.
func put[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = make(map[string]V)
	}
	(*m)[key] = value
}

// Queues returns what waits for each registered consumer, in the order of bus.Registry.Consumers.
// It takes one statement of bounded cost, and another where keys may be blocked. Ask every few
// seconds rather than with every request. Queues does not report pauses; see [Admin.Queues]. Its
// errors are the database's, and [ErrSchemaOutdated].
func (p *Processor) Queues(ctx context.Context) ([]Queue, error) {
	var names, parking []string
	for _, c := range p.consumers {
		names = append(names, c.Names()...)
		if parks(c.Consumer) {
			parking = append(parking, c.Names()...)
		}
	}
	found, err := p.store.Stats(ctx, p.db, names)
	if err != nil {
		return nil, fmt.Errorf("outbox: queues: %w", dberr.Explained(err))
	}
	parked, err := p.store.CountParkedKeys(ctx, p.db, parking)
	if err != nil {
		return nil, fmt.Errorf("outbox: queues: %w", dberr.Explained(err))
	}
	byName := make(map[string]Queue, len(found))
	for _, row := range found {
		byName[row.Consumer] = newQueue(row, parked)
	}
	stats := make([]Queue, len(p.consumers))
	for i, c := range p.consumers {
		stats[i] = Queue{Consumer: c.Name(), Registered: true, BlocksKeys: parks(c.Consumer)}
		for _, name := range c.Names() {
			stats[i] = sum(stats[i], byName[name])
		}
	}
	return stats, nil
}

// parks reports whether poisoned messages of a consumer block their keys.
func parks(c bus.Consumer) bool { return c.Ordered() && c.Config().Ordered == bus.BlockKey }

// sum adds what waits under a former name of a consumer.
func sum(a, b Queue) Queue {
	a.Ready += b.Ready
	a.Delayed += b.Delayed
	a.Leased += b.Leased
	a.Poisoned += b.Poisoned
	a.BlockedKeys += b.BlockedKeys
	a.OldestReady = max(a.OldestReady, b.OldestReady)
	a.OldestPoisoned = max(a.OldestPoisoned, b.OldestPoisoned)
	return a
}
