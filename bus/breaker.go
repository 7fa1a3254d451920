package bus

import (
	"time"
)

// CircuitBreakerConfig configures when [CircuitBreaker] opens. Zero fields mean the defaults.
type CircuitBreakerConfig struct {
	// MinRequests is the minimum number of runs in the window before it may open: 1 or more.
	// Defaults to 20.
	MinRequests int
	// FailureRatio is the share of failed runs that opens it: more than 0, up to 1. Defaults to
	// 0.5.
	FailureRatio float64
	// Window is the approximate time over which runs are counted: 1 s to 1 h. Defaults to 30 s.
	Window time.Duration
	// Cooldown is how long the breaker stays open before one message probes: 1 s to 1 h. It
	// doubles after each failed probe, up to 1 min. Defaults to 10 s.
	Cooldown time.Duration
}

// CircuitBreaker stops the consumer in all processes when too many of its runs fail. While the
// circuit breaker is open, nothing is claimed for the consumer, and a failed run does not count as
// an attempt unless it panicked. Single messages run as probes. A successful probe closes the
// breaker.
//
// Runs that return an error or time out count as failed. Runs that are [Permanent], snoozed or
// discarded do not count: after such a probe, the next message probes at once. [NewRegistry] reports
// fields that are out of range. CircuitBreaker excludes outbox.WithCircuit.
func CircuitBreaker(config CircuitBreakerConfig) ConsumerOption {
	return func(c *ConsumerConfig) { c.Breaker = &config }
}
