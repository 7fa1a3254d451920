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

// Poll asks for the condition again and again, for as long as patience lasts: at first after every, later after a tenth
// of the time that has passed, up to 50 ms, since many conditions are statements.
func Poll(t testing.TB, what string, patience, every time.Duration, condition func() bool) {
	t.Helper()
	begun := time.Now()
	deadline := time.After(patience)
	for !condition() {
		select {
		case <-time.After(max(every, min(time.Since(begun)/10, 50*time.Millisecond))):
		case <-deadline:
			t.Fatalf("gave up waiting: %s", what)
		}
	}
}
