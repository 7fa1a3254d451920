package middleware

import (
	"time"

	"github.com/cenkalti/backoff/v4"
)

// MaxBackoff is the longest wait [Exponential] gives.
const MaxBackoff = 15 * time.Minute

// Exponential doubles the wait with every failed attempt, starting at initial,
// spreads it by ±50 % so that messages which failed together do not return
// together, and never exceeds [MaxBackoff].
func Exponential(initial time.Duration) func(attempt int) time.Duration {
	return func(attempt int) time.Duration {
		if initial <= 0 {
			return 0
		}
		interval := min(initial, MaxBackoff)
		for i := 1; i < attempt && interval < MaxBackoff; i++ {
			interval = min(2*interval, MaxBackoff)
		}
		// A BackOff counts its calls in memory, while attempts are counted in
		// the database: make a fresh one that starts at the right interval.
		b := backoff.NewExponentialBackOff(backoff.WithInitialInterval(interval),
			backoff.WithMaxInterval(MaxBackoff), backoff.WithMaxElapsedTime(0))
		return min(b.NextBackOff(), MaxBackoff) // jitter may exceed the maximum
	}
}

// Constant waits the same time after every failed attempt.
func Constant(d time.Duration) func(attempt int) time.Duration {
	return func(int) time.Duration { return d }
}
