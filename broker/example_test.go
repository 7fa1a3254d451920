package broker_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

// memory is a broker in this process. It has one destination.
type memory struct{ records []broker.Record }

func (m *memory) Publish(_ context.Context, records []broker.Record) []error {
	errs := make([]error, len(records))
	for i, r := range records {
		if r.Destination != "orders" {
			errs[i] = fmt.Errorf("%w: %q", broker.ErrNoDestination, r.Destination)
			continue
		}
		m.records = append(m.records, r)
	}
	return errs
}

// An adapter returns an outcome for each record. Package brokertest tests adapters.
func ExamplePublisher() {
	var publisher broker.Publisher = new(memory)
	errs := publisher.Publish(context.Background(), []broker.Record{{Destination: "orders"}, {Destination: "invoices"}})
	fmt.Println(errs[0], errors.Is(errs[1], broker.ErrNoDestination))
	// Output: <nil> true
}
