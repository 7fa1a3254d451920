package bus

import (
	"fmt"
	"time"
)

// Priority says which messages of a consumer come first: see [Prioritized].
type Priority uint8

// The priorities.
const (
	Normal Priority = iota
	High
	Urgent
)

// maxAgeing is the longest head start.
const maxAgeing = 24 * time.Hour

// Prioritized has the consumer run messages of a higher priority (outbox.Priority) before
// others. Each level is worth a head start of ageing: a message that has been due for so much
// longer goes first all the same, so that none waits for ever. ageing is 1 s to 24 h; 5 minutes
// are a good start.
func Prioritized(ageing time.Duration) ConsumerOption {
	return func(c *ConsumerConfig) {
		if c.Aging = ageing; ageing < time.Second || ageing > maxAgeing {
			c.mistakes = append(c.mistakes, fmt.Sprintf("Prioritized: aging %s: 1 s to 24 h are allowed", ageing))
		}
	}
}

// Prioritizes reports whether the consumer goes by priorities.
func (c Consumer) Prioritizes() bool { return c.config.Aging > 0 }
