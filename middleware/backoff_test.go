package middleware_test

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/middleware"
)

// initials are first waits from the shortest to beyond the maximum; for zero see below.
func initials() []time.Duration {
	return []time.Duration{1, time.Millisecond, time.Second, 10 * time.Second, time.Minute,
		15*time.Minute - 1, 15 * time.Minute, 15*time.Minute + 1, 24 * time.Hour}
}

func TestExponentialStaysWithinItsBounds(t *testing.T) {
	t.Parallel()
	attempts := []int{-1, 0, 1, 2, 61, 62, 63, 64, 65, 66}
	for attempt := range 100_001 {
		attempts = append(attempts, attempt)
	}
	// Each of these would take centuries if the doubling went on.
	attempts = append(attempts, math.MaxInt32, 1<<53, math.MaxInt-1, math.MaxInt)
	for _, initial := range initials() {
		wait := middleware.Exponential(initial)
		for _, attempt := range attempts {
			if got := wait(attempt); got < 0 || got > 15*time.Minute {
				t.Fatalf("Exponential(%s)(%d): got %s, want 0 to %s", initial, attempt, got, 15*time.Minute)
			}
		}
	}
}

func TestExponentialOfZeroIsZero(t *testing.T) {
	t.Parallel()
	for _, attempt := range []int{0, 1, 2, 5, 100} {
		if got := middleware.Exponential(0)(attempt); got != 0 {
			t.Errorf("attempt %d: got %s, want 0", attempt, got)
		}
	}
}

// sample returns the shortest, the mean and the longest of many waits.
func sample(initial time.Duration, attempt int) (shortest, mean, longest time.Duration) {
	const waits = 4000
	wait := middleware.Exponential(initial)
	shortest = math.MaxInt64
	for range waits {
		d := wait(attempt)
		mean += d / waits
		shortest, longest = min(shortest, d), max(longest, d)
	}
	return shortest, mean, longest
}

func TestExponentialDoublesWithEveryAttempt(t *testing.T) {
	t.Parallel()
	const initial = 10 * time.Second
	interval := initial
	for attempt := 1; attempt <= 6; attempt++ { // the longest wait stays below the maximum
		shortest, mean, longest := sample(initial, attempt)
		// The deviation of a mean is 0.5 % of the interval: 3 % are six of them.
		if off := (mean - interval).Abs(); off > interval*3/100 {
			t.Errorf("attempt %d: got a mean of %s, want about %s", attempt, mean, interval)
		}
		if shortest < interval/2 || longest > interval*3/2+1 {
			t.Errorf("attempt %d: got %s to %s, want within ±50 %% of %s", attempt, shortest, longest, interval)
		}
		if shortest > interval*6/10 || longest < interval*14/10 {
			t.Errorf("attempt %d: got %s to %s, want them spread by ±50 %% of %s", attempt, shortest, longest, interval)
		}
		interval *= 2
	}
}

func TestExponentialAtTheMaximum(t *testing.T) {
	t.Parallel()
	for _, attempt := range []int{8, 9, 20, 1000} { // 10 s doubled seven times exceeds it
		shortest, _, longest := sample(10*time.Second, attempt)
		if shortest < 15*time.Minute/2 || shortest > 15*time.Minute*6/10 || longest != 15*time.Minute {
			t.Errorf("attempt %d: got %s to %s, want %s to %s", attempt, shortest, longest, 15*time.Minute/2, 15*time.Minute)
		}
	}
}

func TestExponentialCountsNothingItself(t *testing.T) {
	t.Parallel()
	wait := middleware.Exponential(10 * time.Second)
	for range 100 { // a stateful policy would have grown by now
		wait(1)
	}
	if got := wait(1); got > 15*time.Second+1 {
		t.Errorf("attempt 1 after many others: got %s, want at most 15s", got)
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for attempt := range 100 {
				wait(attempt)
			}
		})
	}
	group.Wait()
}

func TestConstant(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{0, time.Second, 10 * time.Second, 24 * time.Hour} {
		for _, attempt := range []int{math.MinInt, 0, 1, 2, 100, math.MaxInt} {
			if got := middleware.Constant(d)(attempt); got != d {
				t.Errorf("Constant(%s)(%d): got %s, want %s", d, attempt, got, d)
			}
		}
	}
}
