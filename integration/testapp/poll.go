package testapp

import (
	"testing"
	"time"
)

// Eventually polls until the condition holds.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	Poll(t, what, 2*time.Minute, 2*time.Millisecond, condition)
}

// Poll asks for the condition again and again, for as long as patience lasts.
func Poll(t testing.TB, what string, patience, every time.Duration, condition func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("gave up waiting: %s", what)
		}
	}
}
