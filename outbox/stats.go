package outbox

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// counters add up over all runs of a processor.
type counters struct {
	claims, emptyClaims, claimed, fenced, recovered, crashed, poisoned, abandoned atomic.Int64
}

// Stats tells what the processor has done and is doing. It does not touch the
// database.
func (p *Processor) Stats() bus.ProcessorStats {
	c := &p.counters
	stats := bus.ProcessorStats{
		Claims: c.claims.Load(), EmptyClaims: c.emptyClaims.Load(), Claimed: c.claimed.Load(), Fenced: c.fenced.Load(),
		Recovered: c.recovered.Load(), Crashed: c.crashed.Load(), Poisoned: c.poisoned.Load(), Abandoned: c.abandoned.Load(),
		Limit: p.config.Concurrency,
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil {
		stats.Running, stats.Queued = p.current.dispatcher.load()
	}
	return stats
}

// Queues looks up what waits for each registered consumer, in one statement of
// bounded cost. Ask every few seconds rather than with every request.
func (p *Processor) Queues(ctx context.Context) ([]bus.QueueStats, error) {
	names := make([]string, len(p.consumers))
	for i, c := range p.consumers {
		names[i] = c.Name()
	}
	stats, err := p.store.Stats(ctx, p.db, names)
	if err != nil {
		return nil, fmt.Errorf("outbox: queues: %w", err)
	}
	return stats, nil
}
