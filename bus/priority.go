package bus

import (
	"fmt"
	"time"
)

// Priority sets which messages of a consumer run first: see [Prioritized].
type Priority uint8

// The priorities: each level has a head start on the one before, see [Prioritized].
const (
	// Normal is the default.
	Normal Priority = iota
	// High is one level above Normal.
	High
	// Urgent is two levels above Normal.
	Urgent
)

// maxAging is the maximum head start of a level.
const maxAging = 24 * time.Hour

// Prioritized makes the consumer run messages of a higher priority (outbox.Priority) first. Each
// level is a head start of aging: a High message that is due now runs before the Normal messages that
// became due less than aging ago, and after the older ones. So no message waits forever. aging is 1 s
// to 24 h; start with 5 minutes. Without this option the consumer ignores priorities.
//
// Prioritized excludes [Ordered], [KeyConcurrency], [Fair] and [KeyRateLimit], and needs PostgreSQL
// or SQLite.
func Prioritized(aging time.Duration) ConsumerOption {
	return func(c *ConsumerConfig) {
		c.Aging = aging
		if aging < time.Second || aging > maxAging {
			c.mistakes = append(c.mistakes, fmt.Sprintf("Prioritized: aging %s: 1 s to 24 h are allowed", aging))
		}
	}
}
