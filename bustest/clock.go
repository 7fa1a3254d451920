package bustest

import (
	"sync"
	"time"
)

// clock is time that stands still until it is told to move. It is safe for
// concurrent use, since handlers read it.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = t
}
