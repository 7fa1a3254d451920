package outbox

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
		if wait := m.next(now).Sub(now); wait < 0 || wait > remoteSpread {
			t.Errorf("%s: got %s to wait, want at most %s", what, wait, remoteSpread)
		}
	}
	soon("the first wake-up")
	claimed := int64(0)
	for range 10 { // each brings a message
		claimed++
		m.after(now, true, claimed)
		if wait := m.next(now).Sub(now); wait != remoteMin {
			t.Fatalf("after a look that brought something: got %s to wait, want %s", wait, remoteMin)
		}
		now = now.Add(10 * time.Millisecond)
	}
	m.after(now, false, claimed) // the last of them
	for name, busy := range map[string]bool{"others were faster": false, "the consumers are at it anyway": true} {
		for range 10 {
			now = now.Add(time.Second)
			soon("after a while in which " + name)
			if busy {
				claimed += 100
			}
			m.after(now, !busy, claimed)
		}
		if wait := m.next(now).Sub(now); wait != remoteMax {
			t.Errorf("after ten looks when %s: got %s to wait, want %s", name, wait, remoteMax)
		}
	}
}

func TestWhoFindsSomethingLooksUnaskedUntilThatBringsNothing(t *testing.T) {
	t.Parallel()
	var m wakePacer
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if _, ok := m.after(now, true, 1); ok {
		t.Error("nobody woke us: got another look, want none")
	}
	looks := 0
	for range 100 { // they go on notifying us, and each time somebody else is faster
		m.next(now)
		if again, ok := m.after(now, true, 1); ok {
			looks++
			now = again
		} else {
			now = now.Add(10 * time.Millisecond)
		}
	}
	if looks == 0 || looks > 5 {
		t.Errorf("looks unasked that brought nothing: got %d, want 1 to 5", looks)
	}
	m.next(now)
	again, ok := m.after(now, false, 2)
	if wait := again.Sub(now); !ok || wait != remoteMin {
		t.Errorf("after a look that brought something: got another after %s, %t, want one after %s", wait, ok, remoteMin)
	}
	if _, ok := m.after(now.Add(remoteRecent), true, 3); ok {
		t.Error("when others have fallen silent: got another look, want none")
	}
}
