package testapp

import (
	"os"
	"testing"
	"time"
)

// Eventually polls until the condition holds.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	Poll(t, what, patience(), 2*time.Millisecond, condition)
}

// patience is how long Eventually waits. integration/mutants sets a shorter one: there, most waits are in vain.
func patience() time.Duration {
	if d, err := time.ParseDuration(os.Getenv(PatienceVariable)); err == nil {
		return d
	}
	return 2 * time.Minute
}

// PatienceVariable names the environment variable that has a duration.
const PatienceVariable = "ASYNCMONOLITH_TEST_PATIENCE"

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
