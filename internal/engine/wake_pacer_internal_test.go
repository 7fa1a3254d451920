package engine

// Internal, since what it tests cannot be seen from outside but in the load of the
// database.

import (
	"testing"
	"time"
)

func TestLooksForOthersArePacedByWhatTheyBring(t *testing.T) {
	t.Parallel()
	var m wakePacer
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	soon := func(what string) {
		t.Helper()
		if at, ok := m.next(now); !ok || at.Before(now) || at.Sub(now) > remoteSpread {
			t.Errorf("%s: got %s to wait, %t, want at most %s", what, at.Sub(now), ok, remoteSpread)
		}
	}
	for range 12 { // everybody is at work
		m.after(now, time.Millisecond, false, false, 0)
	}
	soon("the first wake-up")
	claimed := int64(0)
	for range 10 { // each brings a message
		claimed++
		m.after(now, time.Millisecond, true, true, claimed)
		if at, _ := m.next(now); at.Sub(now) != remoteMin {
			t.Fatalf("after a look that brought something: got %s to wait, want %s", at.Sub(now), remoteMin)
		}
		now = now.Add(10 * time.Millisecond)
	}
	m.after(now, time.Millisecond, true, false, claimed) // the last of them
	for name, busy := range map[string]bool{"others were faster": false, "the consumers are at it anyway": true} {
		for range 12 {
			now = now.Add(time.Second)
			soon("after a while in which " + name)
			if busy {
				claimed += 100
			}
			m.after(now, time.Millisecond, true, !busy, claimed)
		}
		if at, _ := m.next(now); at.Sub(now) != remoteMax {
			t.Errorf("after twelve looks when %s: got %s to wait, want %s", name, at.Sub(now), remoteMax)
		}
	}
}

// A wake-up during a look causes another one, and where looks take long no sooner than the pace allows.
func TestWakeUpsDuringALookHaveThePaceToo(t *testing.T) {
	t.Parallel()
	var m wakePacer
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for range 12 {
		m.next(now)
		if !m.take() {
			t.Fatal("after a wake-up: got no look")
		}
		now = now.Add(time.Second)
		if _, again := m.after(now, time.Second, true, false, 0); again {
			t.Fatal("there was no wake-up during the look: got another")
		}
	}
	m.next(now)
	m.take()
	if _, ok := m.next(now); ok {
		t.Error("a wake-up during a look: got one beside it")
	}
	if at, again := m.after(now, time.Second, true, false, 0); !again || at.Sub(now) != remoteMax {
		t.Errorf("the look after a slow one: got %t, after %s, want one after %s", again, at.Sub(now), remoteMax)
	}
	if at, again := m.after(now, 2*time.Millisecond, true, false, 0); !again || at.Sub(now) != 8*time.Millisecond {
		t.Errorf("the look after a quick one: got %t, after %s, want one after four times as long", again, at.Sub(now))
	}
	if !m.take() || m.take() {
		t.Error("the look after that: got no wake-up, or two, want one")
	}
	if _, ok := m.next(now); !ok {
		t.Error("a wake-up without a look: got no look")
	}
}
