package adapter

import (
	"context"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

// InOrder publishes records one after the other, for broker.OrderedPublisher, until one fails or half of the time of ctx is
// over, so that a broker that is slow is none that is away.
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
