package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
)

const (
	// recount is how long a count of the backlog is used, at most, while records arrive.
	recount = 10 * time.Second
	// roomEvery is the first wait before the backlog is counted again, and roomLater the longest.
	// A count reads the whole backlog.
	roomEvery = time.Second
	roomLater = 30 * time.Second
	mostRetry = 2 * time.Second
)

// checkRoom returns an error if the backlog is full. It counts only sometimes: more often the less
// room there was, at most once per fortieth of the backlog.
func (r *Runner) checkRoom(ctx context.Context, rc *receiving) error {
	if !rc.runs.mustCount(rc.maxBacklog, time.Now()) {
		return nil
	}
	waiting, err := r.countWaiting(ctx, rc, rc.maxBacklog)
	if err != nil {
		r.outage.Failed("count what waits", err)
		rc.runs.failed(err)
		return fmt.Errorf("relay: receiver %q: %w", rc.name, err)
	}
	if waiting > rc.maxBacklog {
		return fmt.Errorf("relay: receiver %q: more than %d messages wait", rc.name, rc.maxBacklog)
	}
	return nil
}

// countWaiting counts pending messages, up to most+1.
func (r *Runner) countWaiting(ctx context.Context, rc *receiving, most int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	waiting, err := r.store.Waiting(ctx, r.db, rc.consumers(r.registry), most+1)
	if err == nil {
		rc.runs.recounted(waiting, time.Now())
	}
	return waiting, err
}

// mustCount reports whether the last count is outdated.
func (s *running) mustCount(most int, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Sub(s.asked) >= recount || s.since > max((most-s.waiting)/4, most/40)
}

func (s *running) recounted(waiting int, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting, s.since, s.asked = waiting, 0, now
}

// awaitRoom waits until the database answers and the backlog has room: a tenth of it, once it was
// full. The waits double, so that a slowly shrinking backlog is counted rarely. It returns false
// when ctx has ended.
func (r *Runner) awaitRoom(ctx context.Context, rc *receiving) bool {
	if failures := rc.runs.failuresInARow(); failures > 0 {
		// The batch may be the cause rather than the database.
		if !outage.Pause(ctx, min(mostRetry, 50*time.Millisecond<<min(failures-1, 6))) {
			return false
		}
	}
	most, pause := rc.maxBacklog, roomEvery
	for ctx.Err() == nil {
		waiting, err := r.countWaiting(ctx, rc, most)
		next := roomEvery
		switch {
		case ctx.Err() != nil:
			return false
		case err != nil:
			r.outage.Failed("count what waits", err, roomEvery)
			rc.runs.failed(err)
		case waiting <= most:
			r.outage.Recovered()
			rc.runs.pause("")
			return true
		default:
			most = rc.maxBacklog - rc.maxBacklog/10
			next, pause = pause, min(2*pause, roomLater)
			rc.runs.pause("more than %d messages wait", rc.maxBacklog)
		}
		if !outage.Pause(ctx, next) {
			return false
		}
	}
	return false
}

func (s *running) failuresInARow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failures
}
