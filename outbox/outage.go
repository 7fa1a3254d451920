package outbox

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// outage keeps track of whether the database answers.
type outage struct {
	logger *slog.Logger

	mu           sync.Mutex
	err          error
	since        time.Time
	logged       time.Time
	suppressed   int
	recoverAfter time.Time
}

// noticed records a failed statement, and logs at most one line a second.
func (o *outage) noticed(what string, err error) {
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

// over records a statement that succeeded. After an outage nobody's claims are
// recovered for a third of a lease: their owners must get the chance to renew
// what expired meanwhile.
func (o *outage) over(lease time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		return
	}
	o.err = nil
	o.recoverAfter = time.Now().Add(lease / 3)
	if lasted := time.Since(o.since); lasted >= time.Second { // a lost connection is not worth a second line
		o.logger.Info("database answers again", "after", lasted)
	}
}

// mayRecover tells whether expired claims of others may be taken.
func (o *outage) mayRecover() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err == nil && time.Now().After(o.recoverAfter)
}

func (o *outage) last() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// newRetry is the wait between tries while the database does not answer.
func newRetry() backoff.BackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(0))
}

// pause waits and tells whether the wait was not cut short.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
