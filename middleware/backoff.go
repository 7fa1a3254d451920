package middleware

import (
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
)

// Exponential doubles the wait with every failed attempt, starting at initial,
// spreads it by ±50 % so that messages which failed together do not return
// together, and never exceeds 15 minutes.
func Exponential(initial time.Duration) func(attempt int) time.Duration {
	return func(attempt int) time.Duration {
		if initial <= 0 {
			return 0
		}
		interval := min(initial, limits.Backoff)
		for i := 1; i < attempt && interval < limits.Backoff; i++ {
			interval = min(2*interval, limits.Backoff)
		}
		// A BackOff counts its calls in memory, while attempts are counted in
		// the database: make a fresh one that starts at the right interval.
		b := backoff.NewExponentialBackOff(backoff.WithInitialInterval(interval),
			backoff.WithMaxInterval(limits.Backoff), backoff.WithMaxElapsedTime(0))
		return min(b.NextBackOff(), limits.Backoff) // jitter may exceed the maximum
	}
}

// Constant waits the same time after every failed attempt.
func Constant(d time.Duration) func(attempt int) time.Duration {
	return func(int) time.Duration { return d }
}
