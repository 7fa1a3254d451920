package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAKilledProcessIsResumed runs the program, which starts itself again as a worker.
func TestAKilledProcessIsResumed(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "durable")
	if text, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, text)
	}
	text, err := exec.CommandContext(t.Context(), program).CombinedOutput()
	if err != nil {
		t.Fatalf("run: %v\n%s", err, text)
	}
	for line, want := range map[string]int{
		"order 17: reserved":                             1,
		"order 17: charged":                              1,
		"order 17: the process is killed while it ships": 1,
		"order 17: shipped from shelf 7, receipt R-17":   1,
		"order 18: charged":                              1,
		"order 18: shipped from shelf 7, receipt R-18":   1,
		"monday: all orders are shipped":                 1,
		`fulfil {"order":17}: done`:                      1,
		`fulfil {"order":18}: done`:                      1,
		`close-day {"day":"monday"}: done`:               1,
	} {
		if n := strings.Count(string(text), line); n != want {
			t.Errorf("%q: got %d times, want %d, in:\n%s", line, n, want, text)
		}
	}
}
