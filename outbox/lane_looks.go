package outbox

import (
	"context"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	// A look for expected messages begins so far behind the newest, since they are not
	// committed in the order of their ranks, which are numbers, or instants in microseconds.
	lateRanks    = 256
	lateInstants = int64(time.Second / time.Microsecond)
)

func (l *lanes) late() int64 {
	if l.PerKey > 0 {
		return lateInstants
	}
	return lateRanks
}

// laneLooks returns what to look for on behalf of consumers that go by keys: of all that match, behind
// what was seen or, with all, of everything there is.
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

// lookAtLanes has the dispatcher know of messages with keys, and adds to the probe which of
// them have crashed.
func (r *run) lookAtLanes(ctx context.Context, probe *store.Probe) error {
	looks, of := r.dispatcher.laneLooks(time.Now(), true, func(*lanes) bool { return true })
	if len(looks) == 0 {
		return nil
	}
	states, err := r.store.ProbeLanes(ctx, r.db, looks, true)
	if err != nil {
		return err
	}
	d := r.dispatcher
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
	return nil
}

// lookForExpected looks for messages with keys that somebody is about to commit, or of all
// consumers. It reports whether there was anything to ask, and whether it found work for somebody idle.
func (r *run) lookForExpected(ctx context.Context, now time.Time, all bool) (asked, news bool) {
	d := r.dispatcher
	looks, of := d.laneLooks(now, false, func(l *lanes) bool { return all || now.Before(l.of.expected) })
	if len(looks) == 0 {
		return false, false
	}
	states, err := ask(ctx, r, "poll", statementTimeout, func(ctx context.Context) ([]store.LaneState, error) {
		return r.store.ProbeLanes(ctx, r.db, looks, false)
	})
	if err != nil {
		return true, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range states {
		news = news || !of[s.Look].active
		of[s.Look].activate()
	}
	d.room.Broadcast()
	return true, news
}
