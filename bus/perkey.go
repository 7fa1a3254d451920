package bus

import (
	"time"
)

// maxPerKey is the maximum of KeyConcurrency; use [Fair] for more.
const maxPerKey = 1000

// KeyConcurrency limits how many messages of one key, such as a tenant, the consumer runs at once, in
// all processes together: 1 to 1000. They run in any order. Further messages of the key wait without
// blocking other keys: each key gets a share of the runs.
//
// The key is that of [Ordered]: outbox.OrderingKey, or what the payload's OrderingKey method
// returns. Without a key Produce fails with [ErrNoKey]. KeyConcurrency excludes [Ordered], [Fair]
// and [Prioritized], and needs PostgreSQL or SQLite.
func KeyConcurrency(n int) ConsumerOption {
	return func(c *ConsumerConfig) { set(c, "KeyConcurrency", &c.KeyConcurrency, n) }
}

// Fair gives each key a share of the consumer's runs, so that a key with a million messages does
// not delay the others. It is [KeyConcurrency] without a limit, and excludes the same options.
func Fair() ConsumerOption {
	return func(c *ConsumerConfig) { c.Fair = true }
}

// KeyRateLimit is [RateLimit] per key, with the key of [Ordered] and the ranges of RateLimit. It
// can be combined with [Ordered], [KeyConcurrency], [Fair] and RateLimit; alone it implies Fair. It
// excludes [Prioritized], and needs PostgreSQL or SQLite.
func KeyRateLimit(n int, per time.Duration, burst int) ConsumerOption {
	return func(c *ConsumerConfig) {
		if setsRate(c, "KeyRateLimit", n, per, burst) {
			c.KeyRate, c.KeyRatePer, c.KeyRateBurst = n, per, burst
		}
	}
}
