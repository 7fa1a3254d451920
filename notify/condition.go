package notify

import (
	"log/slog"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
)

// quietFor is the least time between two complaints, so that a connection that
// comes and goes does not fill the log.
const quietFor = time.Minute

// condition is whether one direction works. It logs when that changes.
type condition struct {
	logger    *slog.Logger
	bad, good string

	mu         sync.Mutex
	ok         bool
	err        error
	logged     time.Time
	complained bool // and not yet said that it works again
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
