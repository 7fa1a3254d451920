package bus

import (
	"math"
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

// Keyed reports whether the consumer uses the keys of messages.
func (c Consumer) Keyed() bool { return c.Ordered() || c.KeyConcurrency() > 0 }

// KeyConcurrency returns how many messages of one key may run at once, in any order. Zero means
// that the consumer runs them in order, or ignores keys.
func (c Consumer) KeyConcurrency() int {
	switch {
	case c.Ordered():
		return 0
	case c.config.Fair || c.config.KeyConcurrency == 0 && c.config.KeyRate > 0:
		return math.MaxInt32
	}
	return c.config.KeyConcurrency
}

// validateKeys records mistakes in options for keys.
func (c *Consumer) validateKeys() {
	option, config := c.keyOption(), c.config
	if option == "" {
		return
	}
	if c.Prioritizes() {
		c.mistake("%s and Prioritized do not go together", option)
	}
	switch {
	case c.Ordered() && (config.Fair || config.KeyConcurrency > 0):
		c.mistake("Ordered runs one message of a key at a time: KeyConcurrency and Fair do not go with it")
	case config.Fair && config.KeyConcurrency > 0:
		c.mistake("Fair is KeyConcurrency without a bound: one of them is allowed")
	case config.KeyConcurrency > maxPerKey:
		c.mistake("KeyConcurrency %d: 1 to %d are allowed", config.KeyConcurrency, maxPerKey)
	}
}

// keyOption names the option that makes the consumer keyed, or returns "".
func (c *Consumer) keyOption() string {
	switch {
	case c.Ordered():
		return "Ordered"
	case c.config.KeyConcurrency > 0:
		return "KeyConcurrency"
	case c.config.Fair:
		return "Fair"
	case c.config.KeyRate > 0:
		return "KeyRateLimit"
	}
	return ""
}
