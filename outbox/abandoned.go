package outbox

import (
	"context"
	"fmt"
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// abandon notes that a handler is left behind.
func (d *dispatcher) abandon(consumer string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.abandoned = append(d.abandoned, consumer)
}

// ended notes that it is over after all.
func (d *dispatcher) ended(consumer string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.Index(d.abandoned, consumer)
	d.abandoned = slices.Delete(d.abandoned, i, i+1)
	d.room.Broadcast()
}

// leftBehind names the consumers of those that still run.
func (d *dispatcher) leftBehind() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(slices.Values(d.abandoned))
}

// abandonCall abandons the call that the worker is in.
func (w *worker) abandonCall(ctx context.Context, t *task) error {
	r, name := w.run, t.consumer.Name()
	r.dispatcher.abandon(name)
	w.isolate.Abandon(func() { r.dispatcher.ended(name) })
	if context.Cause(ctx) == bus.ErrStopping {
		return fmt.Errorf("%w: %w", bus.ErrStopping, bus.ErrAbandoned) // it had no chance to finish
	}
	r.counters.abandoned.Add(1)
	r.config.Logger.Error("consumer ignored its timeout and was abandoned",
		"consumer", name, "message_id", t.message.ID.String(), "timeout", t.consumer.settings.Timeout)
	return bus.ErrAbandoned
}
