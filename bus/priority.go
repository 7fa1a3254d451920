package bus

import (
	"fmt"
	"time"
)

// Priority sets which messages of a consumer run first: see [Prioritized].
type Priority uint8

// The priorities.
const (
	Normal Priority = iota
	High
	Urgent
)

// maxAging is the maximum head start of a level.
const maxAging = 24 * time.Hour

// Prioritized makes the consumer run messages of a higher priority (outbox.Priority) first. Each
// level is worth a head start of aging: a message that has been due for longer than that still goes
// first, so that none waits forever. aging is 1 s to 24 h; start with 5 minutes.
func Prioritized(aging time.Duration) ConsumerOption {
	return func(c *ConsumerConfig) {
		c.Aging = aging
		if aging < time.Second || aging > maxAging {
			c.mistakes = append(c.mistakes, fmt.Sprintf("Prioritized: aging %s: 1 s to 24 h are allowed", aging))
		}
	}
}
