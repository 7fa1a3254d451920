//go:build unix

package chaos

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Options are more of a consumer's options, for runs that choose them at random. What is zero
// is left out.
type Options struct {
	Fair        bool
	Ageing      time.Duration // of priorities
	Limit       int
	Rate        int // in a second, with RateBurst
	Concurrency int
	Breaker     float64 // the part of its runs that must fail
	Size        int     // of its batches
	Wait        time.Duration
	Keep        bool // for an hour
}

func (o Options) given() (options []bus.ConsumerOption) {
	for _, option := range []struct {
		given bool
		is    bus.ConsumerOption
	}{
		{o.Fair, bus.Fair()},
		{o.Ageing > 0, bus.Prioritized(o.Ageing)},
		{o.Limit > 0, bus.GlobalConcurrency(o.Limit)},
		{o.Rate > 0, bus.RateLimit(o.Rate, time.Second, RateBurst)},
		{o.Concurrency > 0, bus.Concurrency(o.Concurrency)},
		{o.Breaker > 0, bus.CircuitBreaker(bus.CircuitBreakerConfig{FailureRatio: o.Breaker, Window: 5 * time.Second, Cooldown: time.Second})},
		{o.Size > 0, bus.BatchSize(o.Size)},
		{o.Wait > 0, bus.BatchWait(o.Wait)},
		{o.Keep, bus.Keep(time.Hour)},
	} {
		if option.given {
			options = append(options, option.is)
		}
	}
	return options
}

// RateBurst is the burst of consumers with a rate.
const RateBurst = 20

// flow are the options of a consumer that runs in order, or is bounded over all processes, and
// those that it has besides.
func (config WorkerConfig) flow(name string) (options []bus.ConsumerOption) {
	if slices.Contains(config.Batched, name) {
		options = append(options, bus.BatchSize(20))
	}
	switch {
	case slices.Contains(config.Limited, name):
		options = append(options, bus.SharedConcurrency("limit", config.Limit))
	case slices.Contains(config.Shared, name):
		options = append(options, bus.KeyConcurrency(config.PerKey))
	case slices.Contains(config.Rated, name):
		options = append(options, bus.RateLimit(config.Rate, time.Second, RateBurst))
	case slices.Contains(config.Skips, name):
		options = append(options, bus.Ordered(bus.SkipPoisoned))
	case slices.Contains(config.Ordered, name):
		options = append(options, bus.Ordered(bus.BlockKey))
	}
	return append(options, config.Options[name].given()...)
}
