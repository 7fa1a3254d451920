package shipping

import (
	"context"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/examples/services/service"
)

// heldAt is subscriber, but for the process that the story kills.
func heldAt(batch int, subscriber broker.Subscriber) broker.Subscriber {
	if batch == 0 {
		return subscriber
	}
	return &holding{subscriber, batch}
}

// holding stands still at the worst moment, so that the story can kill the process then: a batch
// is committed, and the broker does not know it yet. No service of yours has this.
type holding struct {
	broker.Subscriber
	at int // in which batch
}

// Subscribe implements broker.Subscriber.
func (h *holding) Subscribe(ctx context.Context, fn func(context.Context, []broker.Record) error) error {
	batches := 0
	return h.Subscriber.Subscribe(ctx, func(ctx context.Context, records []broker.Record) error {
		err := fn(ctx, records)
		if batches++; err != nil || batches != h.at {
			return err
		}
		service.Tell(service.Event{Held: len(records)})
		<-ctx.Done()
		return ctx.Err()
	})
}
