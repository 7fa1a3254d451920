package outbox

import (
	"context"
	"encoding/json"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
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
	// Those poisoned after a run are not among them: see [admin.Queue], and the metric
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

	// Circuits reports, while the processor runs, for each consumer with a [Circuit] or a
	// bus.CircuitBreaker whether that stops it in this process.
	Circuits map[string]bool `json:"circuits,omitempty"`
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
	spent := make(map[string]float64, len(s.RatesSpent))
	for consumer, d := range s.RatesSpent {
		spent[consumer] = d.Round(time.Millisecond).Seconds()
	}
	return json.Marshal(struct {
		plain
		RatesSpent map[string]float64 `json:"rates_spent_seconds,omitempty"`
	}{plain(s), spent})
}

// Stats returns what the processor has done and is doing. It does not touch the database.
func (p *Processor) Stats() Stats {
	s := p.engine.Stats()
	stats := Stats{
		Claims: s.Claims, EmptyClaims: s.EmptyClaims, Claimed: s.Claimed, Fenced: s.Fenced, Recovered: s.Recovered, Crashed: s.Crashed,
		Abandoned: s.Abandoned, CrashPoisoned: s.CrashPoisoned, Uncounted: s.Uncounted, Unordered: s.Unordered,
		Running: s.Running, Queued: s.Queued, Limit: s.Limit, Unsettled: s.Unsettled, Circuits: s.Circuits, RatesSpent: s.RatesSpent,
	}
	if s.Limits != nil {
		stats.Limits = make(map[string]LimitStats, len(s.Limits))
	}
	for name, l := range s.Limits {
		stats.Limits[name] = LimitStats(l)
	}
	return stats
}

// Queues returns what waits for each registered consumer, in the order of bus.Registry.Consumers, as
// [admin.Client.Queues] does. Its cost is bounded; ask every few seconds rather than with every request. Its errors are
// the database's, and [ErrSchemaOutdated].
func (p *Processor) Queues(ctx context.Context) ([]admin.Queue, error) {
	consumers := p.registry.Consumers()
	if len(consumers) == 0 {
		return nil, nil
	}
	var names []string
	for _, c := range consumers {
		names = append(names, c.Names()...)
	}
	found, err := p.admin.Queues(ctx, p.db, names...)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]admin.Queue, len(found))
	for _, q := range found {
		byName[q.Consumer] = q
	}
	queues := make([]admin.Queue, len(consumers))
	for i, c := range consumers {
		queues[i] = byName[c.Name()]
		for _, former := range c.Names()[1:] {
			queues[i] = sum(queues[i], byName[former])
		}
	}
	return queues, nil
}

// sum adds what waits under a former name of a consumer.
func sum(a, b admin.Queue) admin.Queue {
	a.Ready += b.Ready
	a.Delayed += b.Delayed
	a.Leased += b.Leased
	a.Poisoned += b.Poisoned
	a.BlockedKeys += b.BlockedKeys
	a.OldestReady = max(a.OldestReady, b.OldestReady)
	a.OldestPoisoned = max(a.OldestPoisoned, b.OldestPoisoned)
	return a
}
