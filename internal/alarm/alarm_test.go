package alarm_test

import (
	"testing"
	"testing/synctest"
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
}

// Whoever waits hears that the alarm was set earlier.
func TestALoopLooksSoonerWhenTheAlarmIsSetEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, ctx, looks := time.Now(), t.Context(), make(chan time.Duration)
		a := alarm.New()
		go a.Loop(ctx, time.Hour, func() { looks <- time.Since(start) })
		if got := <-looks; got != 0 {
			t.Errorf("the first look: got it after %s, want it at once", got)
		}
		synctest.Wait()
		a.By(start.Add(time.Second))
		for _, want := range []time.Duration{time.Second, time.Hour + time.Second} {
			if got := <-looks; got != want {
				t.Errorf("look: got it after %s, want it after %s", got, want)
			}
		}
	})
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
