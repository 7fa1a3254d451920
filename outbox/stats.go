package outbox

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
)

// Stats counts what a processor has done since it was made, and tells
// what it is doing now. Counts are of this process alone.
type Stats struct {
	Claims      int64 `json:"claims"`       // claims that brought messages
	EmptyClaims int64 `json:"empty_claims"` // claims that brought none
	Claimed     int64 `json:"claimed"`      // messages claimed
	Fenced      int64 `json:"fenced"`       // results that were void because the claim had been taken away
	Recovered   int64 `json:"recovered"`    // claims of vanished owners that were recovered
	Crashed     int64 `json:"crashed"`      // messages whose owner had vanished, among the recovered
	Abandoned   int64 `json:"abandoned"`    // consumers that ignored their timeout
	// CrashPoisoned counts messages that were poisoned because their owners kept
	// vanishing. Those poisoned after a run are not among them: see [Queue],
	// and the metric asyncmonolith.message.settled of package otel.
	CrashPoisoned int64 `json:"crash_poisoned"`

	// Uncounted counts runs of transactional consumers that did not count as an
	// attempt, since they lost a conflict or their connection: see bus.ErrUncounted.
	Uncounted int64 `json:"uncounted"`

	Running int `json:"running"` // consumers that run now
	Queued  int `json:"queued"`  // messages claimed that wait for a worker
	Limit   int `json:"limit"`   // the most consumers that may run at once
	// Unsettled is the number of outcomes that were put aside after a failed try to write
	// them, since somebody else has the message locked or the database does not take them.
	Unsettled int `json:"unsettled"`
}

// counters add up over all runs of a processor.
type counters struct {
	claims, emptyClaims, claimed, fenced, recovered, crashed, crashPoisoned, abandoned, uncounted atomic.Int64
}

// Stats tells what the processor has done and is doing. It does not touch the
// database.
func (p *Processor) Stats() Stats {
	c := &p.counters
	stats := Stats{
		Claims: c.claims.Load(), EmptyClaims: c.emptyClaims.Load(), Claimed: c.claimed.Load(), Fenced: c.fenced.Load(),
		Recovered: c.recovered.Load(), Crashed: c.crashed.Load(), CrashPoisoned: c.crashPoisoned.Load(), Abandoned: c.abandoned.Load(), Uncounted: c.uncounted.Load(),
		Limit: p.config.Concurrency,
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil {
		stats.Running, stats.Queued = p.current.dispatcher.load()
		stats.Unsettled = p.current.ledger.putAside()
	}
	return stats
}

// Queues looks up what waits for each registered consumer, in the order of
// bus.Registry.Consumers, in one statement of bounded cost. Ask every few seconds
// rather than with every request. What is paused Admin.Queues tells. Its errors are the database's, and [ErrSchema].
func (p *Processor) Queues(ctx context.Context) ([]Queue, error) {
	var names []string
	for _, c := range p.consumers {
		names = append(names, c.Names()...)
	}
	found, err := p.store.Stats(ctx, p.db, names)
	if err != nil {
		return nil, fmt.Errorf("outbox: queues: %w", dberr.Explained(err))
	}
	byName := make(map[string]Queue, len(found))
	for _, row := range found {
		byName[row.Consumer] = newQueue(row)
	}
	stats := make([]Queue, len(p.consumers))
	for i, c := range p.consumers {
		stats[i] = Queue{Consumer: c.Name(), Registered: true}
		for _, name := range c.Names() {
			stats[i] = sum(stats[i], byName[name])
		}
	}
	return stats, nil
}

// sum adds what waits under a former name of a consumer.
func sum(a, b Queue) Queue {
	a.Ready += b.Ready
	a.Delayed += b.Delayed
	a.Leased += b.Leased
	a.Poisoned += b.Poisoned
	a.OldestReady = max(a.OldestReady, b.OldestReady)
	a.OldestPoisoned = max(a.OldestPoisoned, b.OldestPoisoned)
	return a
}
