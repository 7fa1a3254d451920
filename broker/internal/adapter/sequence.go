package adapter

import (
	"context"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

// InOrder implements broker.OrderedPublisher with a function that publishes one record. It stops when
// a record fails, and when half of the time until the deadline of ctx is over: a slow broker must not
// be mistaken for an unavailable one.
func InOrder(ctx context.Context, records []broker.Record, one func(record broker.Record) error) (n int, err error) {
	var half time.Time
	if deadline, ok := ctx.Deadline(); ok {
		half = time.Now().Add(time.Until(deadline) / 2)
	}
	for n, record := range records {
		if n > 0 && !half.IsZero() && time.Now().After(half) {
			return n, nil
		}
		if err := one(record); err != nil {
			return n, err
		}
	}
	return len(records), nil
}
