package outage

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Outage is what a set of loops knows about the database. It is safe for
// concurrent use.
type Outage struct {
	logger *slog.Logger
	grace  time.Duration

	mu         sync.Mutex
	err        error
	since      time.Time
	logged     time.Time
	suppressed int
	settled    time.Time
}

// New makes an Outage that logs to logger. For the given grace after an outage
// [Outage.Settled] stays false.
func New(logger *slog.Logger, grace time.Duration) *Outage {
	return &Outage{logger: logger, grace: grace}
}

// Noticed records a failed statement, and logs at most one line a second.
func (o *Outage) Noticed(what string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.err == nil {
		o.since = now
	}
	o.err = err
	if now.Sub(o.logged) >= time.Second {
		o.logger.Error("database statement failed", "operation", what, "error", err, "more_since_last_line", o.suppressed)
		o.logged, o.suppressed = now, 0
		return
	}
	o.suppressed++
}

// Over records a statement that succeeded.
func (o *Outage) Over() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		return
	}
	o.err = nil
	o.settled = time.Now().Add(o.grace)
	if lasted := time.Since(o.since); lasted >= time.Second { // a lost connection is not worth a second line
		o.logger.Info("database answers again", "after", lasted)
	}
}

// Settled tells whether the database answers and has done so for the grace.
func (o *Outage) Settled() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err == nil && time.Now().After(o.settled)
}

// Err returns the last error while the database does not answer, else nil.
func (o *Outage) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// NewRetry is the wait between tries while the database does not answer.
func NewRetry() backoff.BackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(0))
}

// Pause waits and tells whether the wait was not cut short.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
