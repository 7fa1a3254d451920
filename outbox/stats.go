package outbox

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
)

// counters add up over all runs of a processor.
type counters struct {
	claims, emptyClaims, claimed, fenced, recovered, crashed, crashPoisoned, abandoned, uncounted atomic.Int64
}

// Stats tells what the processor has done and is doing. It does not touch the
// database.
func (p *Processor) Stats() bus.ProcessorStats {
	c := &p.counters
	stats := bus.ProcessorStats{
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
// rather than with every request. Its errors are the database's, and [ErrSchema].
func (p *Processor) Queues(ctx context.Context) ([]bus.QueueStats, error) {
	var names []string
	for _, c := range p.consumers {
		names = append(names, c.Names()...)
	}
	found, err := p.store.Stats(ctx, p.db, names)
	if err != nil {
		return nil, fmt.Errorf("outbox: queues: %w", dberr.Explained(err))
	}
	byName := make(map[string]bus.QueueStats, len(found))
	for _, q := range found {
		byName[q.Consumer] = q
	}
	stats := make([]bus.QueueStats, len(p.consumers))
	for i, c := range p.consumers {
		stats[i].Consumer = c.Name()
		for _, name := range c.Names() {
			stats[i] = sum(stats[i], byName[name])
		}
	}
	return stats, nil
}

// sum adds what waits under a former name of a consumer.
func sum(a, b bus.QueueStats) bus.QueueStats {
	a.Ready += b.Ready
	a.Delayed += b.Delayed
	a.Leased += b.Leased
	a.Poisoned += b.Poisoned
	a.OldestReady = max(a.OldestReady, b.OldestReady)
	a.OldestPoisoned = max(a.OldestPoisoned, b.OldestPoisoned)
	return a
}
