package bus

import (
	"time"
)

// maxPerKey is the maximum of KeyConcurrency; use [Fair] for more.
const maxPerKey = 1000

// KeyConcurrency limits how many messages of one key the consumer runs at once, in all processes
// together: 1 to 1000, in any order. A key may be a tenant, for instance. Further messages wait
// without blocking other keys: each key has its share.
//
// The key is that of [Ordered]: outbox.OrderingKey, or what the payload's OrderingKey method
// returns.
func KeyConcurrency(n int) ConsumerOption {
	return func(c *ConsumerConfig) { set(c, "KeyConcurrency", &c.KeyConcurrency, n) }
}

// Fair gives each key a share of the consumer's runs, so that a key with a million messages does
// not delay the others. It is [KeyConcurrency] without a limit.
func Fair() ConsumerOption {
	return func(c *ConsumerConfig) { c.Fair = true }
}

// KeyRateLimit is [RateLimit] per key. It can be combined with [Ordered], [KeyConcurrency] and
// [Fair]; alone it implies Fair.
func KeyRateLimit(n int, per time.Duration, burst int) ConsumerOption {
	return func(c *ConsumerConfig) {
		if setsRate(c, "KeyRateLimit", n, per, burst) {
			c.KeyRate, c.KeyRatePer, c.KeyRateBurst = n, per, burst
		}
	}
}
