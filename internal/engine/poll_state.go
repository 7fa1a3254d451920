package engine

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// pollState is the poller's side of the dispatcher: where looks for messages begin, and what they have
// found.
type pollState struct {
	mu         *sync.Mutex // the dispatcher's
	work, room *sync.Cond
	config     *ProcessorConfig
	catalog    *catalog
	quarantine *quarantine

	cursors []wantCursor  // of the catalog's wants
	ahead   time.Duration // the database's clock minus ours
}

// lanesAppeared acts on a look for expected keyed messages. It reports whether idle consumers got
// work.
func (ps *pollState) lanesAppeared(of []*lanes, states []store.LaneState) (news bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, s := range states {
		l := of[s.Look]
		news = news || !l.active
		l.activate()
	}
	ps.room.Broadcast()
	return news
}

// looks returns all wants and the positions of their cursors, where their looks begin. A sweep
// passes the position to begin behind.
func (ps *pollState) looks(from *store.Position) (wants []store.Want, stood []store.Position) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	wants = slices.Clone(ps.catalog.wants)
	for i := range wants {
		stood = append(stood, ps.cursors[i].start)
		wants[i].After = *cmp.Or(from, &stood[i])
	}
	return wants, stood
}

// found acts on a look for all wants, which began while the cursors stood at stood.
func (ps *pollState) found(p store.Poll, wants []store.Want, stood []store.Position, began time.Time) {
	now := time.Now()
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.setClockLocked(p.Now, began, now)
	first := make([]store.Position, len(ps.catalog.wants))
	due := make([]bool, len(ps.catalog.wants))
	for i, want := range p.Due {
		first[want], due[want] = p.First[i], true
		ps.catalog.owner[want].activate()
	}
	for i := range ps.cursors {
		ps.cursors[i].looked(wants[i].After, stood[i], first[i], due[i], p.Now)
	}
	kept := ps.quarantine.pending()
	ps.suspectLocked(p)
	ps.quarantine.countLongRunning(now, ps.config.Concurrency)
	ps.quarantine.found(p, began, now)
	if kept {
		ps.work.Broadcast() // what was kept for crashed messages may be free
	}
	ps.room.Broadcast()
}

// suspectLocked notes which consumers have crashed messages, as a look has found them.
func (ps *pollState) suspectLocked(p store.Poll) {
	for _, c := range ps.catalog.consumers {
		c.suspects = 0
	}
	for _, want := range p.Suspects {
		ps.catalog.owner[want].suspects |= crashedOnce
	}
	for _, want := range p.Killers {
		ps.catalog.owner[want].suspects |= crashedMore
	}
}

// foundBehind acts on a look at a part of what is due. It implies nothing about the rest.
func (ps *pollState) foundBehind(p store.Poll) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for i, want := range p.Due {
		c := &ps.cursors[want]
		c.start = nearer(c.start, ahead(p.First[i]))
		ps.catalog.owner[want].activate()
	}
	ps.room.Broadcast()
}

// expected returns the wants of consumers for which messages are expected, or of all.
func (ps *pollState) expected(now time.Time, all bool) (wants []store.Want) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for i, want := range ps.catalog.wants {
		if all || now.Before(ps.catalog.owner[i].expected) {
			want.After = ps.cursors[i].start
			wants = append(wants, want)
		}
	}
	return wants
}

// appeared acts on a look for expected messages. It reports whether idle consumers got work.
func (ps *pollState) appeared(wants []store.Want, p store.Poll) (news bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, i := range p.Due {
		c := ps.catalog.byName[wants[i].Consumer]
		news = news || !c.active
		c.activate()
	}
	ps.room.Broadcast()
	return news
}

// nextSoloCheck returns when to look again while messages wait to run solo: when that may begin,
// and often enough to notice lost processes.
func (ps *pollState) nextSoloCheck(now time.Time) time.Time {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	soon := now.Add(ps.quarantine.lease / 4)
	if from := ps.quarantine.soloFrom; from.After(now) && from.Before(soon) {
		return from
	}
	return soon
}

// skip moves all cursors to where messages are new, because looks from their positions take too
// long.
func (ps *pollState) skip(now time.Time) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for i := range ps.cursors {
		ps.cursors[i].skip(ps.clockLocked(now).Add(-margin))
	}
}

// setClock sets the estimate of the database's clock from a statement that was sent at sent.
func (ps *pollState) setClock(clock, sent time.Time) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.setClockLocked(clock, sent, time.Now())
}

// setClockLocked uses the time before the statement: the estimate is then early rather than late,
// and no run starts after its deadline. A slow statement does not replace an earlier estimate.
func (ps *pollState) setClockLocked(clock, sent, now time.Time) {
	if known := ps.ahead != 0; !clock.IsZero() && (!known || now.Sub(sent) < time.Second) {
		ps.ahead = clock.Sub(sent)
	}
}

// clock returns the estimated time of the database at an instant of our clock.
func (ps *pollState) clock(now time.Time) time.Time {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.clockLocked(now)
}

func (ps *pollState) clockLocked(now time.Time) time.Time { return now.Add(ps.ahead) }

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
// all, at everything there is, or where all was blocked only at what may run.
func (ps *pollState) laneLooks(now time.Time, all bool, match func(*lanes) bool) (looks []store.LaneLook, of []*lanes) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, l := range ps.catalog.allLanes() {
		if !match(l) {
			continue
		}
		look := store.LaneLook{Source: l.Source, After: l.floor, Blocked: all && l.blocked}
		switch {
		case !all:
			look.After = max(l.last-l.late(), 0)
		case !now.Before(later(l.nextSweep, l.nextLook)):
			look.After = 0
		}
		looks, of = append(looks, look), append(of, l)
	}
	return looks, of
}

// walked notes how long looks from the very beginning took, failed ones included. For a while after that,
// looks begin at the floor: otherwise each poll would walk the index entries that vacuum has left, even
// for an idle consumer.
func (ps *pollState) walked(looks []store.LaneLook, of []*lanes, began, ended time.Time) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for i, l := range of {
		if looks[i].After == 0 {
			l.nextLook = ended.Add(min(laneSweeps*ended.Sub(began), longestWait))
		}
	}
}

// lookedAtLanes applies the result of a look at some lanes.
func (ps *pollState) lookedAtLanes(of []*lanes, states []store.LaneState, poll *store.Poll) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, l := range of {
		l.stuck = false
	}
	for _, s := range states {
		switch l, next := of[s.Look], s.Wait(); {
		case s.Crashes > 0:
			l.stuck = true
			if s.Crashes == 1 {
				poll.Suspects = append(poll.Suspects, l.of.wants[0])
			} else {
				poll.Killers = append(poll.Killers, l.of.wants[0])
			}
		case next > 0:
			if poll.Next == 0 || next < poll.Next {
				poll.Next = next
			}
		default:
			l.again = true
			l.activate()
		}
	}
}
