package engine

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	// A look for expected messages begins this far behind the newest, since they do not commit in
	// the order of their ranks. Ranks are numbers, or instants in microseconds.
	lateRanks    = 256
	lateInstants = int64(time.Second / time.Microsecond)
)

func (l *lanes) late() int64 {
	if l.PerKey > 0 {
		return lateInstants
	}
	return lateRanks
}

// laneLooks returns the looks for the keyed consumers that match: behind what was seen or, with
// all, at everything there is.
func (d *dispatcher) laneLooks(now time.Time, all bool, match func(*lanes) bool) (looks []store.LaneLook, of []*lanes) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.allLanes() {
		if !match(l) {
			continue
		}
		look := store.LaneLook{Source: l.Source, After: l.floor}
		switch {
		case !all:
			look.After = max(l.last-l.late(), 0)
		case !now.Before(l.nextSweep):
			look.After = 0
		}
		looks, of = append(looks, look), append(of, l)
	}
	return looks, of
}

// lookAtLanes activates the lanes that have messages, and adds the crashed ones to the probe.
func (r *run) lookAtLanes(ctx context.Context, probe *store.Probe) error {
	looks, of := r.dispatcher.laneLooks(time.Now(), true, func(*lanes) bool { return true })
	return r.inParts(ctx, looks, func(from, to int, states []store.LaneState) { r.dispatcher.lookedAtLanes(of[from:to], states, probe) }, true)
}

// inParts looks at some lanes at a time: one statement for many would have too many parts or take
// too long. A failed part does not stop the others. It begins at a random part, so that each has
// its turn if time runs out.
func (r *run) inParts(ctx context.Context, looks []store.LaneLook, found func(from, to int, states []store.LaneState), crashed bool) (err error) {
	const most = 50
	parts := (len(looks) + most - 1) / most
	first := rand.IntN(max(parts, 1))
	for i := 0; i < parts && ctx.Err() == nil; i++ {
		from := (first + i) % parts * most
		to := min(from+most, len(looks))
		states, failed := r.store.Claims.ProbeLanes(ctx, r.db, looks[from:to], crashed)
		if failed == nil {
			found(from, to, states)
		}
		err = cmp.Or(err, failed)
	}
	return cmp.Or(err, ctx.Err())
}

// lookedAtLanes applies the result of a look at some lanes.
func (d *dispatcher) lookedAtLanes(of []*lanes, states []store.LaneState, probe *store.Probe) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range of {
		l.stuck = false
	}
	for _, s := range states {
		switch l, next := of[s.Look], time.Duration(s.Next)*time.Microsecond; {
		case s.Crashes > 0:
			l.stuck = true
			if s.Crashes == 1 {
				probe.Suspects = append(probe.Suspects, l.of.wants[0])
			} else {
				probe.Killers = append(probe.Killers, l.of.wants[0])
			}
		case next > 0:
			if probe.Next == 0 || next < probe.Next {
				probe.Next = next
			}
		default:
			l.again = true
			l.activate()
		}
	}
}

// lookForExpected looks for keyed messages that are about to be committed, for all consumers if all
// is set. asked reports whether there was anything to look for, news whether idle consumers got
// work.
func (r *run) lookForExpected(ctx context.Context, now time.Time, all bool) (asked, news bool) {
	d := r.dispatcher
	looks, of := d.laneLooks(now, false, func(l *lanes) bool { return all || now.Before(l.of.expected) })
	if len(looks) == 0 {
		return false, false
	}
	_, _ = ask(ctx, r, "poll", statementTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.inParts(ctx, looks, func(from, _ int, states []store.LaneState) {
			d.mu.Lock()
			defer d.mu.Unlock()
			for _, s := range states {
				l := of[from+s.Look]
				news = news || !l.active
				l.activate()
			}
			d.room.Broadcast()
		}, false)
	})
	return true, news
}
