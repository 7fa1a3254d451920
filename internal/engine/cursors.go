package engine

import (
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// margin is how far a claim looks back behind the newest message it has seen, and a look behind the
// database's clock. Transactions shorter than margin may commit in any order. A sweep finds later
// commits.
const margin = 2 * time.Second

// wantCursor is where looks for the messages of one want begin. Messages before it have been
// claimed. Looks thus skip dead index entries, which pile up while a long transaction elsewhere
// holds back vacuum.
type wantCursor struct {
	start store.Position // looks begin behind this position
	floor store.Position // a look found nothing up to here
	seen  store.Position // the furthest claimed message
	drops int            // claims that locked messages and did not take them
}

// edge returns where a look begins when nothing is left to claim for now.
func (c *wantCursor) edge() store.Position {
	if c.seen.At.IsZero() {
		return c.floor
	}
	return farther(c.floor, store.Position{At: c.seen.At.Add(-margin)})
}

// dropped notes the first message that a claim locked and did not take. Concurrent claims may have
// skipped it, so claims that began earlier do not move the cursor.
func (c *wantCursor) dropped(first store.Position) {
	if first.ID != 0 {
		c.start = nearer(c.start, ahead(first))
		c.drops++
	}
}

// claimed notes the result of a claim that looked from looked on, when there had been that many
// drops. more means that there may be more. all reports whether the claim looked at everything
// there is.
func (c *wantCursor) claimed(looked store.Position, drops, found int, last store.Position, more bool) (all bool) {
	if found > 0 {
		c.seen = farther(c.seen, last)
	}
	edge := c.edge()
	switch {
	case c.start.Before(looked), c.drops != drops: // moved back meanwhile
		return false
	case more && found == 0:
		return false
	case more:
		c.start = farther(c.start, last)
		return false
	}
	c.start = edge
	return !edge.Before(looked)
}

// looked notes the result of a look that began behind from, while the cursor stood at stood. first
// is the first message, if one is due.
func (c *wantCursor) looked(from, stood, first store.Position, due bool, now time.Time) {
	place, edge := ahead(first), store.Position{At: now.Add(-margin)}
	if !now.IsZero() {
		c.floor = nearer(c.floor, edge)
		if c.start.At.After(now) { // ahead of the database's clock, since ours was wrong
			c.start = edge
		}
		if c.seen.At.After(now) {
			c.seen = edge
		}
	}
	switch {
	case due && place.Before(stood):
		c.start = nearer(c.start, place)
		return
	case c.start.Before(stood), stood.Before(from): // moved back meanwhile, or the look left out what is in between
		return
	}
	if due {
		edge = nearer(edge, place)
	} else {
		place = edge
	}
	c.floor, c.start = farther(c.floor, edge), farther(c.start, place)
}

// skip moves the cursor on to a place for now, because looks from before it took too long.
func (c *wantCursor) skip(to time.Time) {
	place := store.Position{At: to}
	c.start, c.floor = farther(c.start, place), farther(c.floor, place)
}

// ahead returns the position right before p.
func ahead(p store.Position) store.Position { return store.Position{At: p.At, ID: p.ID - 1} }

func farther(a, b store.Position) store.Position {
	if a.Before(b) {
		return b
	}
	return a
}

func nearer(a, b store.Position) store.Position {
	if b.Before(a) {
		return b
	}
	return a
}
