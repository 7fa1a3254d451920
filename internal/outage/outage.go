package outage

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
)

const (
	troublePause = time.Second      // between lines about one operation
	outagePause  = 10 * time.Second // between lines about one outage
	maxRetry     = 3 * time.Second  // the longest wait of NewRetry, with its jitter
	lookTimeout  = time.Second
)

// Outage is the state of the database as a set of loops sees it. It is safe for concurrent use.
type Outage struct {
	logger *slog.Logger
	grace  time.Duration
	look   func(context.Context) error // may be nil

	mu       sync.Mutex
	err      error
	since    time.Time
	lines    line
	ended    time.Time        // the last one
	troubles map[string]*line // of operations that fail although the database answers
}

// line is the last log line about something that goes on.
type line struct {
	logged     time.Time
	suppressed int
}

// due reports whether it is time for another line.
func (l *line) due(now time.Time, pause time.Duration) bool {
	if now.Sub(l.logged) < pause {
		l.suppressed++
		return false
	}
	return true
}

// New returns an Outage that logs to logger. [Outage.Stable] stays false for grace after an outage.
// look is a statement that any database answers at once. It distinguishes a slow statement from a
// database that does not answer; without it, both are an outage.
func New(logger *slog.Logger, grace time.Duration, look func(context.Context) error) *Outage {
	return &Outage{logger: logger, grace: grace, look: look, troubles: make(map[string]*line)}
}

// Failed records a failed statement and reports whether the database is at fault. If so, that is an
// outage for all operations; otherwise it is a trouble of that one. next is when the operation is
// tried again, if known.
func (o *Outage) Failed(what string, err error, next ...time.Duration) (outage bool) {
	if outage = o.isOutage(err); outage {
		o.began(what, err, next)
	} else {
		o.troubled(what, err, next)
	}
	return outage
}

// isOutage runs look if the error alone does not decide.
func (o *Outage) isOutage(err error) bool {
	class := dberr.ClassOf(err)
	if class != dberr.Timeout || dberr.Answered(err) {
		return class.Outage()
	}
	if o.look == nil || o.Err() != nil { // during an outage the answer is known
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	answer := o.look(ctx)
	return answer != nil && !dberr.Answered(answer)
}

// began logs an outage when it begins, and then at most every ten seconds.
func (o *Outage) began(what string, err error, next []time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.err == nil {
		o.since = now
	}
	o.err = err
	pause := outagePause
	if o.lines.logged.Before(o.since) {
		pause = troublePause // it is a new outage, and connections may be lost again and again
	}
	if !o.lines.due(now, pause) {
		return
	}
	within := maxRetry
	if len(next) > 0 {
		within = next[0]
	}
	o.logger.Error("database does not answer", "operation", what, "error", errorlog.Text(err), "for", now.Sub(o.since),
		"more_since_last_line", o.lines.suppressed, "next_try_within", within)
	o.lines = line{logged: now}
}

// troubled logs at most one line a second for each operation.
func (o *Outage) troubled(what string, err error, next []time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.troubles[what] == nil {
		o.troubles[what] = new(line)
	}
	t, now := o.troubles[what], time.Now()
	if !t.due(now, troublePause) {
		return
	}
	args := []any{"operation", what, "error", errorlog.Text(err), "more_since_last_line", t.suppressed}
	if len(next) > 0 {
		args = append(args, "next_try_within", next[0])
	}
	o.logger.Error("database statement failed", args...)
	*t = line{logged: now}
}

// Recovered records a statement that succeeded.
func (o *Outage) Recovered() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		return
	}
	o.err, o.ended = nil, time.Now()
	if lasted := time.Since(o.since); lasted >= time.Second { // a lost connection is not worth a second line
		o.logger.Info("database answers again", "after", lasted)
	}
}

// Stable reports whether the database answers and has done so for the grace.
func (o *Outage) Stable() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err == nil && time.Now().After(o.ended.Add(o.grace))
}

// Ended returns when the last outage ended, or zero if there was none.
func (o *Outage) Ended() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended
}

// Err returns the last error if the database does not answer, else nil.
func (o *Outage) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// Await runs a check, and repeats it with a backoff while the database does not answer, or not in
// time, until the patience is over. It returns the last result of the check.
func Await(ctx context.Context, patience time.Duration, logger *slog.Logger, check func(context.Context) error) error {
	deadline := time.Now().Add(patience)
	retry := NewRetry()
	for {
		err := check(ctx)
		wait := retry.NextBackOff()
		if err == nil || !dberr.IsUnavailable(err) && dberr.ClassOf(err) != dberr.Timeout || time.Now().Add(wait).After(deadline) {
			return err
		}
		logger.Warn("waiting for the database", "error", errorlog.Text(err), "until", deadline)
		if !Pause(ctx, wait) {
			return err
		}
	}
}

// NewRetry returns the waits between tries while the database does not answer.
func NewRetry() backoff.BackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(0))
}

// Pause waits for d. It returns false if ctx ended first.
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
