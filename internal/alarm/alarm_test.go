package alarm_test

import (
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/alarm"
)

func TestAlarmIsOnlyEverSetEarlier(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	a := alarm.New(time.Second, 3*time.Second)
	if wait := a.Next(now); wait > 0 {
		t.Errorf("a new alarm: got %s to wait, want none", wait)
	}
	a.Rearm(now, now.Add(10*time.Second))
	for range 5 {
		a.Expect(now)
		now = now.Add(900 * time.Millisecond) // a change every 0.9 s
	}
	if wait := a.Next(now); wait > 0 {
		t.Errorf("after a stream of changes: got %s to wait, want none: each looks for the first, not for the last", wait)
	}
	select {
	case <-a.Changed():
	default:
		t.Error("changed: got no signal, want one")
	}
}

func TestExpectedChangesAreLookedForAFewTimes(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	a := alarm.New(time.Second, 3*time.Second)
	a.Rearm(start, start.Add(10*time.Second))
	a.Expect(start)
	now := start
	for _, want := range []time.Duration{time.Second, 3 * time.Second, 13 * time.Second} {
		now = now.Add(a.Next(now))
		if got := now.Sub(start); got != want {
			t.Fatalf("look: got one after %s, want one after %s", got, want)
		}
		a.Rearm(now, now.Add(10*time.Second))
	}
}
