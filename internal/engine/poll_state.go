package engine

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// probes is the poller's side of the dispatcher: where looks for messages begin, and what they have
// found.
type probes struct {
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
func (pr *probes) lanesAppeared(of []*lanes, states []store.LaneState) (news bool) {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	for _, s := range states {
		l := of[s.Look]
		news = news || !l.active
		l.activate()
	}
	pr.room.Broadcast()
	return news
}

// looks returns all wants and the positions of their cursors, where their looks begin. A sweep
// passes the position to begin behind.
func (pr *probes) looks(from *store.Position) (wants []store.Want, stood []store.Position) {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	wants = slices.Clone(pr.catalog.wants)
	for i := range wants {
		stood = append(stood, pr.cursors[i].start)
		wants[i].After = *cmp.Or(from, &stood[i])
	}
	return wants, stood
}

// found acts on a look for all wants, which began while the cursors stood at stood.
func (pr *probes) found(p store.Probe, wants []store.Want, stood []store.Position, began time.Time) {
	now := time.Now()
	pr.mu.Lock()
	defer pr.mu.Unlock()
	pr.setClockLocked(p.Now, began, now)
	first := make([]store.Position, len(pr.catalog.wants))
	due := make([]bool, len(pr.catalog.wants))
	for i, want := range p.Due {
		first[want], due[want] = p.First[i], true
		pr.catalog.owner[want].activate()
	}
	for i := range pr.cursors {
		pr.cursors[i].looked(wants[i].After, stood[i], first[i], due[i], p.Now)
	}
	kept := pr.quarantine.pending()
	pr.suspectLocked(p)
	pr.quarantine.countLongRunning(now, pr.config.Concurrency)
	pr.quarantine.found(p, began, now)
	if kept {
		pr.work.Broadcast() // what was kept for crashed messages may be free
	}
	pr.room.Broadcast()
}

// suspectLocked notes which consumers have crashed messages, as a look has found them.
func (pr *probes) suspectLocked(p store.Probe) {
	for _, c := range pr.catalog.consumers {
		c.suspects = 0
	}
	for _, want := range p.Suspects {
		pr.catalog.owner[want].suspects |= crashedOnce
	}
	for _, want := range p.Killers {
		pr.catalog.owner[want].suspects |= crashedMore
	}
}

// foundBehind acts on a look at a part of what is due. It implies nothing about the rest.
func (pr *probes) foundBehind(p store.Probe) {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	for i, want := range p.Due {
		c := &pr.cursors[want]
		c.start = nearer(c.start, ahead(p.First[i]))
		pr.catalog.owner[want].activate()
	}
	pr.room.Broadcast()
}

// expected returns the wants of consumers for which messages are expected, or of all.
func (pr *probes) expected(now time.Time, all bool) (wants []store.Want) {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	for i, want := range pr.catalog.wants {
		if all || now.Before(pr.catalog.owner[i].expected) {
			want.After = pr.cursors[i].start
			wants = append(wants, want)
		}
	}
	return wants
}

// appeared acts on a look for expected messages. It reports whether idle consumers got work.
func (pr *probes) appeared(wants []store.Want, p store.Probe) (news bool) {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	for _, i := range p.Due {
		c := pr.catalog.byName[wants[i].Consumer]
		news = news || !c.active
		c.activate()
	}
	pr.room.Broadcast()
	return news
}

// nextSoloCheck returns when to look again while messages wait to run solo: when that may begin,
// and often enough to notice lost processes.
func (pr *probes) nextSoloCheck(now time.Time) time.Time {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	soon := now.Add(pr.quarantine.lease / 4)
	if from := pr.quarantine.soloFrom; from.After(now) && from.Before(soon) {
		return from
	}
	return soon
}

// skip moves all cursors to where messages are new, because looks from their positions take too
// long.
func (pr *probes) skip(now time.Time) {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	for i := range pr.cursors {
		pr.cursors[i].skip(pr.clockLocked(now).Add(-margin))
	}
}

// setClock sets the estimate of the database's clock from a statement that was sent at sent.
func (pr *probes) setClock(clock, sent time.Time) {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	pr.setClockLocked(clock, sent, time.Now())
}

// setClockLocked uses the time before the statement: the estimate is then early rather than late,
// and no run starts after its deadline. A slow statement does not replace an earlier estimate.
func (pr *probes) setClockLocked(clock, sent, now time.Time) {
	if known := pr.ahead != 0; !clock.IsZero() && (!known || now.Sub(sent) < time.Second) {
		pr.ahead = clock.Sub(sent)
	}
}

// clock returns the estimated time of the database at an instant of our clock.
func (pr *probes) clock(now time.Time) time.Time {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	return pr.clockLocked(now)
}

func (pr *probes) clockLocked(now time.Time) time.Time { return now.Add(pr.ahead) }

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
func (pr *probes) laneLooks(now time.Time, all bool, match func(*lanes) bool) (looks []store.LaneLook, of []*lanes) {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	for _, l := range pr.catalog.allLanes() {
		if !match(l) {
			continue
		}
		look := store.LaneLook{Source: l.Source, After: l.floor, Blocked: all && l.blocked}
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

// lookedAtLanes applies the result of a look at some lanes.
func (pr *probes) lookedAtLanes(of []*lanes, states []store.LaneState, probe *store.Probe) {
	pr.mu.Lock()
	defer pr.mu.Unlock()
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
