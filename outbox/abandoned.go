package outbox

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// abandoned are handlers that ignored their timeout and were abandoned. When
// there are too many, no more messages are claimed.
type abandoned struct {
	limit int
	full  func(bool) // told when the limit is reached, and when it no longer is

	mu    sync.Mutex
	alive []string // the consumer that each runs
}

func (z *abandoned) add(consumer string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.alive = append(z.alive, consumer)
	if len(z.alive) == z.limit {
		z.full(true)
	}
}

func (z *abandoned) ended(consumer string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if len(z.alive) == z.limit {
		z.full(false)
	}
	i := slices.Index(z.alive, consumer)
	z.alive = slices.Delete(z.alive, i, i+1)
}

func (z *abandoned) names() []string {
	z.mu.Lock()
	defer z.mu.Unlock()
	return slices.Sorted(slices.Values(z.alive))
}

// abandonCall abandons the call that the worker is in.
func (w *worker) abandonCall(ctx context.Context, t *task) error {
	r, name := w.run, t.consumer.Name()
	r.abandoned.add(name)
	w.isolate.Abandon(func() { r.abandoned.ended(name) })
	if context.Cause(ctx) == bus.ErrStopping {
		return fmt.Errorf("%w: %w", bus.ErrStopping, bus.ErrAbandoned) // it had no chance to finish
	}
	r.counters.abandoned.Add(1)
	r.config.Logger.Error("consumer ignored its timeout and was abandoned",
		"consumer", name, "message_id", t.message.ID.String(), "timeout", t.consumer.settings.Timeout)
	return bus.ErrAbandoned
}
