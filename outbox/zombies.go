package outbox

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// zombies are handlers that ignored their timeout and were left behind. When
// there are too many, no more messages are claimed.
type zombies struct {
	limit int
	full  func(bool) // told when the limit is reached, and when it no longer is

	mu    sync.Mutex
	alive []string // the consumer that each runs
}

func (z *zombies) add(consumer string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.alive = append(z.alive, consumer)
	if len(z.alive) == z.limit {
		z.full(true)
	}
}

func (z *zombies) bury(consumer string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if len(z.alive) == z.limit {
		z.full(false)
	}
	i := slices.Index(z.alive, consumer)
	z.alive = slices.Delete(z.alive, i, i+1)
}

func (z *zombies) names() []string {
	z.mu.Lock()
	defer z.mu.Unlock()
	return slices.Sorted(slices.Values(z.alive))
}

// leave abandons the call that the worker's partner is in.
func (w *worker) leave(ctx context.Context, t *task) error {
	r, name := w.run, t.consumer.Name()
	r.zombies.add(name)
	w.partner.Abandon(func() { r.zombies.bury(name) })
	if context.Cause(ctx) == bus.ErrStopping {
		return fmt.Errorf("%w: %w", bus.ErrStopping, bus.ErrAbandoned) // it had no chance to finish
	}
	r.counters.abandoned.Add(1)
	r.config.Logger.Error("consumer ignored its timeout and was abandoned",
		"consumer", name, "message_id", t.message.ID.String(), "timeout", t.consumer.settings.Timeout)
	return bus.ErrAbandoned
}
