package bus

import (
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
)

const (
	maxLimit     = 1000           // each uses a row
	maxLimitName = 240            // bytes, since it is stored with a prefix
	maxRate      = 1_000_000      // per second
	maxPer       = 24 * time.Hour // for longer periods use a schedule
)

// GlobalConcurrency limits concurrent calls of the consumer in all processes together: 1 to 1000. A
// batch is one call, as with [Concurrency]. Each call holds a lease in the database. When a process
// is lost, its leases expire together with its claims. Defaults to no limit. It excludes
// [SharedConcurrency].
func GlobalConcurrency(n int) ConsumerOption {
	return func(c *ConsumerConfig) { setLimit(c, "GlobalConcurrency", "", n) }
}

// SharedConcurrency is [GlobalConcurrency] for all consumers that use the same limit name. They
// must agree on n, 1 to 1000; outbox.NewProcessor reports consumers that do not. A name has 1 to
// 240 bytes.
func SharedConcurrency(name string, n int) ConsumerOption {
	return func(c *ConsumerConfig) {
		if err := limits.CheckName(name); err != nil {
			c.mistakes = append(c.mistakes, fmt.Sprintf("SharedConcurrency: the name %q %v", name, err))
		} else if len(name) > maxLimitName {
			c.mistakes = append(c.mistakes, fmt.Sprintf("SharedConcurrency: the name %q has %d bytes, at most %d are "+
				"allowed", name, len(name), maxLimitName))
		}
		setLimit(c, "SharedConcurrency", name, n)
	}
}

// setLimit sets the consumer's limit. A consumer may have only one.
func setLimit(c *ConsumerConfig, option, name string, n int) {
	if (c.GlobalConcurrency > 0 || c.SharedConcurrency != "") && c.SharedConcurrency != name {
		c.mistakes = append(c.mistakes, option+": the consumer already has a limit: only one GlobalConcurrency or SharedConcurrency is allowed")
	}
	c.SharedConcurrency = name
	set(c, option, &c.GlobalConcurrency, n)
}

// RateLimit lets n runs of the consumer start in each period per, in all processes together. Unused
// starts accumulate, so that up to burst runs may start at once. Retries count. Claimed messages
// that do not start, and transactions that are repeated at once, do not count. n is 1 or more, up
// to a million a second; per is more than 0, up to 24 h; burst is 1 to n. Defaults to no limit.
//
// All processes must use the same rate. During a deploy that changes it, starts can exceed both rates.
func RateLimit(n int, per time.Duration, burst int) ConsumerOption {
	return func(c *ConsumerConfig) {
		if setsRate(c, "RateLimit", n, per, burst) {
			c.Rate, c.RatePer, c.RateBurst = n, per, burst
		}
	}
}

// setsRate reports whether a rate has all its values, and records a mistake if not.
func setsRate(c *ConsumerConfig, option string, n int, per time.Duration, burst int) bool {
	ok := n > 0 && per > 0 && burst > 0
	if !ok {
		c.mistakes = append(c.mistakes,
			fmt.Sprintf("%s %d in %s, burst %d: n of 1 or more, a time of more than 0, and a burst of 1 to n are allowed", option, n, per, burst))
	}
	return ok
}
