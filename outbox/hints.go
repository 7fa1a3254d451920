package outbox

import (
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	rescanMin = time.Second
	rescanMax = 8 * time.Second
)

// hints remember for each want where the last claim ended. Starting there saves
// walking the dead index entries before it, which pile up while a long
// transaction elsewhere holds back vacuum. They are never trusted for long: a
// message that committed late may lie behind, so every now and then a claim
// starts from the beginning.
type hints struct {
	last   []store.Position
	before []store.Position // what last was when it was reset by a rescan
	every  time.Duration
	next   time.Time
}

func newHints(wants int) hints {
	return hints{last: make([]store.Position, wants), before: make([]store.Position, wants), every: rescanMin}
}

// advance notes what a claim found for a want.
func (h *hints) advance(want int, first, last store.Position) {
	if first.Before(h.before[want]) { // the rescan was worth it
		h.every = rescanMin
	}
	h.before[want] = store.Position{}
	if h.last[want].Before(last) {
		h.last[want] = last
	}
}

// rescan forgets every hint, the less often the longer that finds nothing.
func (h *hints) rescan(now time.Time) {
	if now.Before(h.next) {
		return
	}
	h.next = now.Add(h.every)
	h.every = min(2*h.every, rescanMax)
	copy(h.before, h.last)
	clear(h.last)
}
