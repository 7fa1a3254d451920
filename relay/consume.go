package relay

import (
	"context"
	"errors"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
)

// errBehind releases a message that must not be published before an earlier one of its key.
var errBehind error = &bus.OutcomeError{
	Outcome: bus.Released, Err: errors.New("relay: an earlier message of the same key has not been published"),
}

// consume publishes a batch and returns each message's outcome. With bus.Ordered it publishes the
// next message of a key once the broker has the previous one, and stops with a key at its first
// failure.
func (p *publishing) consume(ctx context.Context, batch []*bus.Message) error {
	failed := make(bus.BatchError)
	stuck := make(map[string]bool) // keys with a message that is not published
	fail := func(i int, err error) {
		if failed[i] = err; ordered(batch[i]) {
			stuck[batch[i].OrderingKey] = true
		}
	}
	left := make([]int, len(batch))
	for i := range batch {
		left[i] = i
	}
	for begun, first := time.Now(), true; len(left) > 0; first = false {
		spent := time.Since(begun)
		if !first && (spent > p.config.PublishTimeout/2 || ctx.Err() != nil) {
			for _, i := range left {
				fail(i, errBehind)
			}
			break
		}
		left = p.publishNext(ctx, p.config.PublishTimeout-spent, batch, left, stuck, fail)
	}
	if len(failed) == 0 {
		return nil
	}
	return failed
}

// publishNext publishes those of the messages that no other of the same key precedes, and returns
// the rest.
func (p *publishing) publishNext(
	ctx context.Context, timeout time.Duration, batch []*bus.Message, left []int, stuck map[string]bool, fail func(int, error),
) (rest []int) {
	var records []broker.Record
	var places []int
	codec, taken := access.CodecFromContext(ctx), make(map[string]bool)
	for _, i := range left {
		m := batch[i]
		switch {
		case ordered(m) && stuck[m.OrderingKey]:
			fail(i, errBehind)
			continue
		case ordered(m) && taken[m.OrderingKey]:
			rest = append(rest, i)
			continue
		}
		record, err := p.record(ctx, codec, m)
		if err != nil {
			fail(i, err)
			continue
		}
		taken[m.OrderingKey] = true
		records, places = append(records, record), append(places, i)
	}
	if len(records) > 0 {
		for i, err := range p.publish(ctx, timeout, records) {
			if err != nil {
				fail(places[i], err)
			}
		}
	}
	return rest
}

// ordered reports whether a message must not overtake another one of its key.
func ordered(m *bus.Message) bool {
	return m.Config != nil && m.Config.Ordered != 0 && m.OrderingKey != ""
}
