package testapp

import (
	"context"
	"sync/atomic"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Consumed is a consumer of which nothing is asked.
func Consumed(name string, options ...bus.ConsumerOption) bus.Consumer {
	return bus.Consume(name, func(context.Context, Order) error { return nil }, options...)
}

// Counting is a consumer that counts its runs.
func Counting(name string, runs *atomic.Int64, options ...bus.ConsumerOption) bus.Consumer {
	return bus.Consume(name, func(context.Context, Order) error { runs.Add(1); return nil }, options...)
}
