package middleware

import (
	"math/rand/v2"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
)

// Exponential doubles the wait with every failed attempt, starting at initial, up to 15 minutes. It
// adds a jitter of ±50 %, so that messages that failed together are not retried together. If
// initial is 0 or less, there is no wait. The returned function is safe for concurrent use.
func Exponential(initial time.Duration) func(attempt int) time.Duration {
	return func(attempt int) time.Duration {
		if initial <= 0 {
			return 0
		}
		interval := min(initial, limits.Backoff)
		for i := 1; i < attempt && interval < limits.Backoff; i++ {
			interval = min(2*interval, limits.Backoff)
		}
		return min(interval/2+rand.N(interval+1), limits.Backoff) // the jitter may exceed the maximum
	}
}

// Constant returns the same wait after every failed attempt.
func Constant(d time.Duration) func(attempt int) time.Duration {
	return func(int) time.Duration { return d }
}
