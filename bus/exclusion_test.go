package bus_test

import (
	"context"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// TestOptionsThatExcludeEachOther tests the list in the comment of ConsumerOption.
func TestOptionsThatExcludeEachOther(t *testing.T) {
	t.Parallel()
	options := map[string]bus.ConsumerOption{
		"Ordered": bus.Ordered(bus.BlockKey), "KeyConcurrency": bus.KeyConcurrency(2), "Fair": bus.Fair(),
		"KeyRateLimit": bus.KeyRateLimit(1, time.Second, 1), "Prioritized": bus.Prioritized(time.Minute),
		"GlobalConcurrency": bus.GlobalConcurrency(2), "SharedConcurrency": bus.SharedConcurrency("a", 2),
		"another":   bus.SharedConcurrency("b", 2),
		"RateLimit": bus.RateLimit(1, time.Second, 1), "CircuitBreaker": bus.CircuitBreaker(bus.CircuitBreakerConfig{}),
	}
	excluded := map[[2]string]bool{
		{"Ordered", "KeyConcurrency"}: true, {"Ordered", "Fair"}: true, {"KeyConcurrency", "Fair"}: true,
		{"Prioritized", "Ordered"}: true, {"Prioritized", "KeyConcurrency"}: true, {"Prioritized", "Fair"}: true,
		{"Prioritized", "KeyRateLimit"}: true, {"GlobalConcurrency", "SharedConcurrency"}: true,
		{"GlobalConcurrency", "another"}: true, {"SharedConcurrency", "another"}: true,
	}
	for one, first := range options {
		for other, second := range options {
			if one == other {
				continue
			}
			_, err := bus.NewRegistry(bus.Consume("c", func(context.Context, orderPlaced) error { return nil }, first, second))
			if want := excluded[[2]string{one, other}] || excluded[[2]string{other, one}]; want != (err != nil) {
				t.Errorf("%s with %s: got error %v, want one: %t", one, other, err, want)
			}
		}
	}
	for name, option := range map[string]bus.ConsumerOption{"BatchSize": bus.BatchSize(2), "BatchWait": bus.BatchWait(time.Millisecond)} {
		if _, err := bus.NewRegistry(bus.Consume("c", func(context.Context, orderPlaced) error { return nil }, option)); err == nil {
			t.Errorf("%s of single messages: got no error", name)
		}
	}
}
