package engine

import (
	"sync"
	"time"
)

// rateAhead is how long messages that a rate has counted may wait for a worker.
const rateAhead = 25 * time.Millisecond

// spent sums up how long a rate kept a process from claiming.
type spent struct {
	mu       sync.Mutex
	sum      time.Duration // without the last period
	from, to time.Time     // the last period, which may not be over
}

// hold begins a period and ends the one before.
func (s *spent) hold(now, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum, s.from, s.to = s.atLocked(now), now, until
}

// until returns the sum up to now.
func (s *spent) until(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.atLocked(now)
}

func (s *spent) atLocked(now time.Time) time.Duration {
	if now.After(s.to) {
		now = s.to
	}
	return s.sum + max(now.Sub(s.from), 0)
}
