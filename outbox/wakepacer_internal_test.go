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
		for range 12 {
			now = now.Add(time.Second)
			soon("after a while in which " + name)
			if busy {
				claimed += 100
			}
			m.after(now, !busy, claimed)
		}
		if wait := m.next(now).Sub(now); wait != remoteMax {
			t.Errorf("after twelve looks when %s: got %s to wait, want %s", name, wait, remoteMax)
		}
	}
}
