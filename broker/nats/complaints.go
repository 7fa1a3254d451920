package nats

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// complaintAge is for how long a complaint says something about what fails.
const complaintAge = 5 * time.Second

// complaints are what a connection has last complained of: credentials that are refused, or a
// permission that is missing, show nowhere else. The client keeps one until it has another, and
// does not say when it came: so each operation looks when it begins. It is safe for concurrent use.
type complaints struct {
	nc *nats.Conn

	mu   sync.Mutex
	last error
	came time.Time // when it was seen first; zero if it was there before
}

func listenTo(nc *nats.Conn) *complaints { return &complaints{nc: nc, last: nc.LastError()} }

// look returns the last complaint, and reports whether it is of now.
func (c *complaints) look() (last error, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last = c.nc.LastError(); last != c.last {
		c.last, c.came = last, time.Now()
	}
	return last, time.Since(c.came) < complaintAge
}

// with adds the last complaint to an error that it may be the reason of: it has just come, the connection is down, or
// answers may not be heard, of which the server complains once.
func (c *complaints) with(err error) error {
	if errors.Is(err, nats.ErrReconnectBufExceeded) {
		err = errDisconnected // the connection is told to buffer nothing, and says so in these words
	}
	last, fresh := c.look()
	if last == nil || errors.Is(err, last) {
		return err
	}
	deaf := strings.Contains(last.Error(), `Subscription to "`+cmp.Or(c.nc.Opts.InboxPrefix, strings.TrimSuffix(nats.InboxPrefix, "."))+".")
	if !fresh && !deaf && c.nc.IsConnected() {
		return err
	}
	return fmt.Errorf("%w (last error of the connection: %v)", err, last)
}
