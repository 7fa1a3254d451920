package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
)

// errBehind releases a message behind an unpublished one of its key, or one for which the batch has no
// time left.
var errBehind error = &bus.OutcomeError{
	Outcome: bus.Released, Err: errors.New("relay: an earlier message of the batch failed or took too long"),
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
	begun := time.Now()
	left = p.publishNext(ctx, begun, batch, left, stuck, fail)
	for len(left) > 0 && ctx.Err() == nil && !p.isLate(begun) {
		left = p.publishNext(ctx, begun, batch, left, stuck, fail)
	}
	for _, i := range left {
		fail(i, errBehind)
	}
	if len(failed) == 0 {
		return nil
	}
	return failed
}

// isLate reports whether a batch has used up the time for making records. The rest is the broker's.
func (p *publishing) isLate(begun time.Time) bool {
	return time.Since(begun) > p.config.PublishTimeout/2
}

// publishNext publishes those of the messages that no other of the same key precedes, as many as
// become records in time. It returns the rest.
func (p *publishing) publishNext(
	ctx context.Context, begun time.Time, batch []*bus.Message, left []int, stuck map[string]bool, fail func(int, error),
) (rest []int) {
	var records []broker.Record
	var places []int
	slow := -1 // the message whose functions have outlasted ctx
	codec, taken := access.CodecFromContext(ctx), make(map[string]bool)
	for _, i := range left {
		m := batch[i]
		switch {
		case ordered(m) && stuck[m.OrderingKey]:
			fail(i, errBehind)
			continue
		case ordered(m) && taken[m.OrderingKey], slow >= 0, len(records) > 0 && p.isLate(begun):
			rest = append(rest, i)
			continue
		}
		record, err := p.record(ctx, codec, m)
		if ctx.Err() != nil {
			slow = i
		}
		if err != nil {
			fail(i, err)
			continue
		}
		taken[m.OrderingKey] = true
		records, places = append(records, record), append(places, i)
	}
	if len(records) == 0 {
		return rest
	}
	if slow >= 0 { // neither the broker nor the other messages are to blame
		for _, i := range places {
			err := errBehind
			if i == slow {
				err = fmt.Errorf("relay: route and upcasters of payload %q: %w", batch[i].PayloadType, context.Cause(ctx))
			}
			fail(i, err)
		}
		return rest
	}
	// The functions of the first message may have used more than half.
	timeout := max(p.config.PublishTimeout-time.Since(begun), p.config.PublishTimeout/2)
	for i, err := range p.publish(ctx, timeout, records) {
		if err != nil {
			fail(places[i], err)
		}
	}
	return rest
}

// ordered reports whether a message must not overtake another one of its key.
func ordered(m *bus.Message) bool {
	return m.Config != nil && m.Config.Ordered != 0 && m.OrderingKey != ""
}
