package engine

import (
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// margin is how far a claim looks back behind the newest message it knows of, and a
// look behind the database's clock: transactions that take no longer than that may
// commit in any order. What commits later still a sweep finds.
const margin = 2 * time.Second

// wantCursor is where looks for the messages of one want begin. What lies before it has been
// claimed by some process. So looks skip the dead index entries of what is done, which pile up
// while a long transaction elsewhere holds back vacuum.
type wantCursor struct {
	start store.Position // looks begin behind it
	floor store.Position // up to here a look found nothing
	seen  store.Position // the furthest message that was claimed
	drops int            // counts claims that have locked messages and not taken them
}

// edge is where a look begins when there is nothing left to claim for now.
func (c *wantCursor) edge() store.Position {
	if c.seen.At.IsZero() {
		return c.floor
	}
	return farther(c.floor, store.Position{At: c.seen.At.Add(-margin)})
}

// dropped notes the first message that a claim has locked and not taken. Claims beside it
// may have passed over that: those that began before do not move the cursor.
func (c *wantCursor) dropped(first store.Position) {
	if first.ID != 0 {
		c.start = nearer(c.start, ahead(first))
		c.drops++
	}
}

// claimed notes what a claim found that looked from the given place on: all that it
// asked for, or less, when there had been so many drops. It returns whether it looked at
// everything there is.
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

// looked notes what a look found that began behind the given place, while the cursor
// stood at another: the first message, if there is one.
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
	case c.start.Before(stood), stood.Before(from): // moved back meanwhile, or left out what is in between
		return
	}
	if due {
		edge = nearer(edge, place)
	} else {
		place = edge
	}
	c.floor, c.start = farther(c.floor, edge), farther(c.start, place)
}

// skip gives up what lies behind a place, for now: looks that began before it took
// too long.
func (c *wantCursor) skip(to time.Time) {
	place := store.Position{At: to}
	c.start, c.floor = farther(c.start, place), farther(c.floor, place)
}

// ahead is the place right before one.
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
