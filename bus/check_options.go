package bus

import (
	"cmp"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
)

// validate records mistakes in the options.
func (c *Consumer) validate() {
	config := &c.config
	for _, text := range config.mistakes {
		c.mistake("%s", text)
	}
	if config.Timeout > limits.Timeout {
		c.mistake("Timeout %s: up to %s is allowed", config.Timeout, limits.Timeout)
	}
	for _, set := range []struct {
		field string
		value int
	}{{"Timeout", int(config.Timeout)}, {"MaxAttempts", config.MaxAttempts}, {"AttemptDelay", int(config.AttemptDelay)},
		{"Concurrency", config.Concurrency},
		{"GlobalConcurrency", config.GlobalConcurrency}, {"BatchSize", config.BatchSize}, {"BatchWait", int(config.BatchWait)},
		{"Keep", int(config.Keep)}} {
		if set.value < 0 { // set by another package's option
			c.mistake("%s %d: more than 0 is allowed", set.field, set.value)
		}
	}
	if config.KeepPayload && config.Keep == 0 {
		c.mistake("KeepPayload needs Keep: %w", ErrInvalidOption)
	}
	c.validateBatch()
	c.validateKeys()
	c.validateBreaker()
	c.validateLimits()
	for _, alias := range config.Aliases {
		if err := limits.CheckName(alias); err != nil {
			c.mistake("alias %q %w", alias, err)
		}
	}
	for _, alias := range config.PayloadAliases {
		if err := limits.CheckName(alias); err != nil {
			c.mistake("payload alias %q %w", alias, err)
		}
	}
}

// validateBatch records mistakes in batch options.
func (c *Consumer) validateBatch() {
	switch config := c.config; {
	case c.batch == nil && (config.BatchSize != 0 || config.BatchWait != 0):
		c.mistake("BatchSize and BatchWait are for consumers made by ConsumeBatch or ConsumeRaw")
	case config.BatchSize > maxBatchSize:
		c.mistake("BatchSize %d: 1 to %d are allowed", config.BatchSize, maxBatchSize)
	case config.BatchWait > maxBatchWait:
		c.mistake("BatchWait %s: up to %s is allowed", config.BatchWait, maxBatchWait)
	}
}

// validateKeys records mistakes in options for keys.
func (c *Consumer) validateKeys() {
	option, config := c.keyOption(), c.config
	if option == "" {
		return
	}
	if c.config.Aging > 0 {
		c.mistake("%s and Prioritized do not go together", option)
	}
	switch {
	case c.ordered() && (config.Fair || config.KeyConcurrency > 0):
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
	case c.ordered():
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

// validateBreaker records mistakes in a circuit breaker and sets its defaults.
func (c *Consumer) validateBreaker() {
	if c.config.Breaker == nil {
		return
	}
	b := *c.config.Breaker
	b.MinRequests, b.FailureRatio = cmp.Or(b.MinRequests, 20), cmp.Or(b.FailureRatio, 0.5)
	b.Window, b.Cooldown = cmp.Or(b.Window, 30*time.Second), cmp.Or(b.Cooldown, 10*time.Second)
	if b.MinRequests < 1 {
		c.mistake("CircuitBreaker: MinRequests %d: 1 or more is allowed", b.MinRequests)
	}
	if !(b.FailureRatio > 0 && b.FailureRatio <= 1) {
		c.mistake("CircuitBreaker: FailureRatio %g: more than 0, up to 1, is allowed", b.FailureRatio)
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"Window", b.Window}, {"Cooldown", b.Cooldown}} {
		if d.value < time.Second || d.value > time.Hour {
			c.mistake("CircuitBreaker: %s %s: 1 s to 1 h are allowed", d.field, d.value)
		}
	}
	c.config.Breaker = &b
}

// validateLimits records mistakes in limits that span all processes.
func (c *Consumer) validateLimits() {
	config := c.config
	if config.GlobalConcurrency > maxLimit {
		c.mistake("GlobalConcurrency %d: 1 to %d are allowed", config.GlobalConcurrency, maxLimit)
	}
	c.validateRate("RateLimit", config.Rate, config.RatePer, config.RateBurst)
	c.validateRate("KeyRateLimit", config.KeyRate, config.KeyRatePer, config.KeyRateBurst)
}

func (c *Consumer) validateRate(option string, n int, per time.Duration, burst int) {
	switch {
	case n == 0 && per == 0 && burst == 0:
	case n <= 0 || per <= 0 || burst <= 0:
		c.mistake("%s %d in %s, burst %d: all must be more than 0", option, n, per, burst)
	case per > maxPer:
		c.mistake("%s: the time %s: up to %s is allowed", option, per, maxPer)
	case float64(n)/per.Seconds() > maxRate:
		c.mistake("%s %d in %s: up to %d a second are allowed", option, n, per, maxRate)
	case burst > n:
		c.mistake("%s: the burst %d: 1 to %d are allowed", option, burst, n)
	}
}
