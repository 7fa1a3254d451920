package alarm

import (
	"context"
	"sync"
	"time"
)

// Alarm is when a loop is to look next. It moves earlier, never later: a stream of callers cannot
// delay the look. It is safe for concurrent use; one loop waits for it.
type Alarm struct {
	quick []time.Duration

	mu       sync.Mutex
	at       time.Time
	expected time.Time // the last change whose commit is still to come
	changed  chan struct{}
}

// New returns an alarm that rings at once. After [Alarm.Expect] the loop looks at the quick delays,
// which are in ascending order.
func New(quick ...time.Duration) *Alarm {
	return &Alarm{quick: quick, changed: make(chan struct{}, 1)} // a signal, not a queue
}

// By has the loop look at the given instant at the latest.
func (a *Alarm) By(t time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.at.IsZero() && !t.Before(a.at) {
		return
	}
	a.at = t
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// Expect has the loop look a few times soon, for a change whose commit is not announced.
func (a *Alarm) Expect(now time.Time) {
	a.mu.Lock()
	a.expected = now
	a.mu.Unlock()
	a.By(now.Add(a.quick[0]))
}

// Next returns the time until the next look.
func (a *Alarm) Next(now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.at.Sub(now)
}

// Rearm sets the look after this one: latest, or the next quick one if that is sooner.
func (a *Alarm) Rearm(now, latest time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = latest
	for _, quick := range a.quick {
		if at := a.expected.Add(quick); at.After(now) {
			if at.Before(latest) {
				a.at = at
			}
			return
		}
	}
}

// Ring has the loop look now or, for a change whose commit is still to come, a few
// times soon.
func (a *Alarm) Ring(expected bool) {
	if now := time.Now(); expected {
		a.Expect(now)
	} else {
		a.By(now)
	}
}

// Loop calls look whenever the alarm rings, and at the latest an interval after the last ring,
// until ctx ends. look may set the alarm anew.
func (a *Alarm) Loop(ctx context.Context, interval time.Duration, look func()) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-a.changed:
		}
		now := time.Now()
		if a.Next(now) <= 0 {
			a.Rearm(now, now.Add(interval)) // before the look, so that a ring during it is not lost
			look()
		}
		timer.Reset(a.Next(time.Now()))
	}
}
