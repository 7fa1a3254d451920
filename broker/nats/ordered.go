package nats

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/asyncmonolith/asyncmonolith-go/broker/internal/adapter"
)

// sorter brings messages in the order of the stream, although the server delivers again, behind newer
// ones, what was not acknowledged. Messages go on when all that are delivered and not acknowledged
// are here: then none that comes later is older.
type sorter struct {
	*Subscriber
	ackWait time.Duration
	held    map[uint64]*nats.Msg // by their place in the stream
	since   time.Time            // when the first of them came
	last    uint64               // delivery that came
	sure    bool                 // all deliveries up to the last one were here
}

// wait bounds how long to wait for messages while some are held, which the server is told of.
func (o *sorter) wait(ctx context.Context) (context.Context, context.CancelFunc) {
	if len(o.held) == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, max(o.ackWait/3, time.Millisecond))
}

// add takes what has come, and returns what may go on, in order.
func (o *sorter) add(ctx context.Context, msgs []*nats.Msg) (ready []*nats.Msg) {
	for _, msg := range msgs {
		meta, err := msg.Metadata()
		if err != nil {
			o.sure = false
			continue // it comes again
		}
		o.sure = o.sure && meta.NumDelivered == 1 && meta.Sequence.Consumer == o.last+1
		o.last = meta.Sequence.Consumer
		if len(o.held) == 0 {
			o.since = time.Now()
		}
		o.held[meta.Sequence.Stream] = msg
	}
	if len(o.held) == 0 {
		return nil
	}
	if !o.sure {
		o.sure = o.outstanding(ctx) == len(o.held)
	}
	for _, seq := range slices.Sorted(maps.Keys(o.held)) {
		ready = append(ready, o.held[seq])
	}
	switch {
	case o.sure:
		clear(o.held)
		return ready
	case time.Since(o.since) > 3*o.ackWait: // another subscriber holds the rest
		o.giveBack()
		adapter.Pause(ctx, rand.N(3*o.ackWait+1)) // so that not both give back, and take, at once
	default:
		o.tell(ready, "+WPI")
		adapter.Pause(ctx, min(o.ackWait/10, adapter.FirstPause))
	}
	return nil
}

// outstanding is how many messages are delivered and not acknowledged, and -1 if that is unknown.
func (o *sorter) outstanding(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	consumer, err := o.js.Consumer(ctx, o.config.Stream, o.config.Consumer)
	if err != nil {
		return -1
	}
	return consumer.CachedInfo().NumAckPending
}

// giveBack gives back what is held.
func (o *sorter) giveBack() {
	for _, msg := range o.held {
		o.tell([]*nats.Msg{msg}, "-NAK")
	}
	clear(o.held)
	o.sure = false
}
