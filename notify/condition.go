package notify

import (
	"log/slog"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
)

// quietFor is the minimum time between two warnings, so that an unstable connection does not fill
// the log.
const quietFor = time.Minute

// condition is whether one direction works. It logs changes.
type condition struct {
	logger    *slog.Logger
	bad, good string

	mu         sync.Mutex
	ok         bool
	err        error
	logged     time.Time
	complained bool // a warning was logged, and no recovery since
}

func (c *condition) broken(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ok, c.err = false, err
	if now := time.Now(); !c.complained && (c.logged.IsZero() || now.Sub(c.logged) >= quietFor) {
		c.logged, c.complained = now, true
		c.logger.Warn(c.bad, "error", errorlog.Text(err))
	}
}

func (c *condition) works() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ok, c.err = true, nil
	if c.complained {
		c.complained = false
		c.logger.Info(c.good)
	}
}

func (c *condition) get() (ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ok, c.err
}
