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
	alive map[*partner]string // the consumer each runs
}

func (z *zombies) add(p *partner, consumer string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.alive == nil {
		z.alive = make(map[*partner]string)
	}
	z.alive[p] = consumer
	if len(z.alive) == z.limit {
		z.full(true)
	}
}

// buried is called by every partner that ends, abandoned or not.
func (z *zombies) buried(p *partner) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if _, ok := z.alive[p]; !ok {
		return
	}
	if len(z.alive) == z.limit {
		z.full(false)
	}
	delete(z.alive, p)
}

func (z *zombies) names() (names []string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, name := range z.alive {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// abandon leaves the partner behind, with the call it is in.
func (r *run) abandon(ctx context.Context, t *task, p *partner) error {
	r.zombies.add(p, t.consumer.Name())
	close(p.in) // it ends once the function returns, if ever
	select {
	case <-p.gone: // with a Goexit just now, before it was added
		r.zombies.buried(p)
	default:
	}
	if context.Cause(ctx) == bus.ErrStopping {
		return fmt.Errorf("%w: %w", bus.ErrStopping, bus.ErrAbandoned) // it had no chance to finish
	}
	r.counters.abandoned.Add(1)
	r.config.Logger.Error("consumer ignored its timeout and was abandoned",
		"consumer", t.consumer.Name(), "message_id", t.message.ID.String(), "timeout", t.consumer.settings.Timeout)
	return bus.ErrAbandoned
}
