package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Evidence is what is left of a run, for a judge who was not there.
type Evidence struct {
	Consumers []string
	Jobs      []int // whose produce was committed
	Never     []int // whose produce was rolled back
	Ledger    Ledger
	Pending   []Run       // rows of consumer_messages
	Poisoned  []Run       // rows of poisoned_messages
	Effects   map[Run]int // rows that transactional consumers wrote
	Tx        []string    // the transactional consumers
	Struck    map[Run]int // kills of their owner at which messages were in flight
	OnlyKills bool        // nothing else went wrong: a kill must explain every repetition
	Lease     time.Duration
	Doomed    []int // jobs that are meant to be poisoned
	Claims    int   // rows of message_claims
	History   []Change
	Messages  map[int64]Run  // the messages that the history speaks of
	Keys      map[int]string // of jobs, whose numbers are in the order of their produces
	Ordered   []string       // the consumers that run them in order
	Shared    []string       // those that run so many of each at once
	Skips     []string       // those of Ordered that skip what is poisoned
	Knowledge
}

// Findings are what a judge has to say. Every list of violations is empty when
// the promise was kept.
type Findings struct {
	Lost       []Run // I1: neither done nor waiting nor poisoned
	Ghosts     []Run // I1: a produce that was rolled back ran or waits
	Vanished   []Run // I2: its row is gone, but it never finished
	Both       []Run // I2: waits and is poisoned, or waits twice
	Overlaps   []Run // I3: two workers ran it at once, within a lease
	Twice      []Run // I3: in two live claims
	Unclaimed  []Run // I3: ran on a worker that had not claimed it
	Taken      []Run // I4: in a claim that another ended or changed before its lease had run out
	Stale      []Run // I4: settled under a claim that did not hold it
	Charged    []Run // I5: an attempt or a crash was counted that nothing explains
	Repeated   []Run // ran again, though its owner was not killed
	Unknown    []Run // ran, waits, is poisoned or has effects, though nobody produced it
	Effects    []Run // I6: not exactly one effect, though its row is gone
	Innocent   []Run // poisoned, though not meant to be and in flight at fewer than 3 kills
	Left       []Run // I7: still waiting
	Inverted   []Run // O1: began before one of its key that was produced before it was done
	Beside     []Run // O1: began while another of its key was running, within a lease
	Late       []Run // D1: began after its deadline
	Unfair     []Run // F1: waited while more of another key were claimed than of its own
	Overtaken  []Run // P1: waited while those of lower priorities were claimed
	Claims     int   // I7: claims that hold nothing any more
	Duplicates int   // starts beyond the first that no failure explains
}

// crashLimit is how many owners of a message may vanish before it is poisoned.
const crashLimit = 3

// Judge compares the ledger with the tables.
func Judge(e Evidence) Findings {
	var f Findings
	started, finished, failed := e.Ledger.Count(Started), e.Ledger.Count(Finished), e.Ledger.Count(Failed)
	pending, poisoned := tally(e.Pending), tally(e.Poisoned)
	doomed, tx, away := set(e.Doomed), set(e.Tx), e.excused()
	for _, job := range e.Jobs {
		for _, consumer := range e.Consumers {
			run := Run{consumer, job}
			waits, parked := pending[run], poisoned[run]
			f.Duplicates += max(started[run]-1-failed[run], 0)
			switch {
			case waits+parked > 1:
				f.Both = append(f.Both, run)
			case away(run):
			case waits == 0 && parked == 0 && started[run] == 0:
				f.Lost = append(f.Lost, run)
			case waits == 0 && parked == 0 && finished[run] == 0:
				f.Vanished = append(f.Vanished, run)
			}
			if waits > 0 {
				f.Left = append(f.Left, run)
			}
			if parked > 0 && !doomed[job] && e.Struck[run] < crashLimit {
				f.Innocent = append(f.Innocent, run)
			}
			want := 0
			if tx[consumer] && waits == 0 && parked == 0 {
				want = 1
			}
			if n := e.Effects[run]; n != want && !(n < want && away(run)) {
				f.Effects = append(f.Effects, run)
			}
		}
	}
	f.Ghosts = e.ghosts(started, pending, poisoned)
	f.Unknown = e.unknown(started, pending, poisoned, e.Effects)
	f.Charged = e.charged()
	if e.OnlyKills {
		for run, n := range started {
			if n-1-failed[run] > e.Struck[run] {
				f.Repeated = append(f.Repeated, run)
			}
		}
	}
	f.Overlaps = e.Ledger.Overlaps(e.Lease)
	f.Twice, f.Taken, f.Stale = e.audit()
	// A transaction that outlives its lease has its message locked, but claims of lanes lock
	// nothing: the message may be in another's claim when it commits, whose fence fails then.
	lanes := set(slices.Concat(e.Ordered, e.Shared, e.Fair))
	f.Stale = slices.DeleteFunc(f.Stale, func(run Run) bool { return tx[run.Consumer] && lanes[run.Consumer] })
	f.Unclaimed = e.unclaimed()
	f.Inverted, f.Beside = e.disorder()
	f.Late = e.late()
	_, f.Unfair = e.Advantage(e.Crowd)
	_, f.Overtaken = e.Overtaken(e.Crowd)
	f.Claims = e.Claims
	return f
}

func (e Evidence) ghosts(where ...map[Run]int) (found []Run) {
	for _, job := range e.Never {
		for _, consumer := range e.Consumers {
			run := Run{consumer, job}
			if slices.ContainsFunc(where, func(counts map[Run]int) bool { return counts[run] > 0 }) {
				found = append(found, run)
			}
		}
	}
	return found
}

// unknown finds what belongs to no job and consumer of the run.
func (e Evidence) unknown(where ...map[Run]int) (found []Run) {
	known, consumers := set(slices.Concat(e.Jobs, e.Never)), set(e.Consumers)
	seen := make(map[Run]bool)
	for _, counts := range where {
		for run, n := range counts {
			if n > 0 && !seen[run] && !(known[run.Job] && consumers[run.Consumer]) {
				found = append(found, run)
				seen[run] = true
			}
		}
	}
	return found
}

// charged finds runs that began with more attempts than had failed before, or,
// where only kills went wrong, with more crashes than kills had hit them.
func (e Evidence) charged() (found []Run) {
	failed := make(map[Run]int)
	for _, event := range e.Ledger {
		run := Run{event.Consumer, event.Job}
		switch event.Kind {
		case Failed:
			failed[run]++
		case Started:
			if event.Attempt-1 > failed[run] || e.OnlyKills && event.Crashes > e.Struck[run] {
				found = append(found, run)
			}
		}
	}
	return found
}

// Overlaps finds runs that began on one worker while another was at it and had
// not lost its lease: it began less than a lease ago, and ended later.
func (l Ledger) Overlaps(lease time.Duration) (found []Run) {
	current := make(map[Run]Event)
	for _, e := range l {
		run := Run{e.Consumer, e.Job}
		before, running := current[run]
		switch {
		case e.Kind == Started && running && before.Worker != e.Worker && l.endsAfter(before, e.At) && e.At.Sub(before.At) < lease:
			found = append(found, run)
		case e.Kind != Started && running && before.Worker == e.Worker:
			delete(current, run)
			continue
		}
		if e.Kind == Started {
			current[run] = e
		}
	}
	return found
}

// endsAfter tells whether a run that began with the event reported an end after
// the instant. One that was killed reports none.
func (l Ledger) endsAfter(start Event, at time.Time) bool {
	return slices.ContainsFunc(l, func(e Event) bool {
		return e.Kind != Started && e.Worker == start.Worker && e.Consumer == start.Consumer && e.Job == start.Job &&
			e.Attempt == start.Attempt && e.At.After(at)
	})
}

// Violations lists what was not kept, a line each; nothing when all was.
func (f Findings) Violations() (lines []string) {
	for name, runs := range map[string][]Run{
		"I1: lost": f.Lost, "I1: ran although rolled back": f.Ghosts, "I2: gone without having finished": f.Vanished,
		"I2: in two places": f.Both, "I3: two workers at once": f.Overlaps,
		"I3: in two live claims": f.Twice, "I3: ran unclaimed": f.Unclaimed,
		"I4: taken from a live owner": f.Taken, "I4: settled without a claim": f.Stale,
		"I5: charged for nothing": f.Charged, "repeated though not killed": f.Repeated, "unknown": f.Unknown, "I6: effects other than " +
			"one": f.Effects,
		"poisoned though innocent": f.Innocent, "O1: before its turn": f.Inverted, "O1: beside another of its key": f.Beside,
		"D1: after its deadline": f.Late, "F1: behind more of another key than of its own": f.Unfair, "P1: behind those of lower " +
			"priorities": f.Overtaken, "I7: left over": f.Left,
	} {
		if len(runs) > 0 {
			lines = append(lines, fmt.Sprintf("%s: %d of them, such as %v", name, len(runs), runs[:min(len(runs), 5)]))
		}
	}
	if f.Claims > 0 {
		lines = append(lines, fmt.Sprintf("I7: claims left over: %d", f.Claims))
	}
	slices.Sort(lines)
	return lines
}

// String sums the findings up.
func (f Findings) String() string {
	return fmt.Sprintf("lost %d, duplicates %d, effects other than one %d, innocent poisoned %d%s",
		len(f.Lost)+len(f.Vanished), f.Duplicates, len(f.Effects), len(f.Innocent), strings.Join(append([]string{""}, f.Violations()...), "; "))
}

func tally(runs []Run) map[Run]int {
	counts := make(map[Run]int)
	for _, run := range runs {
		counts[run]++
	}
	return counts
}

func set[T comparable](values []T) map[T]bool {
	return maps.Collect(func(yield func(T, bool) bool) {
		for _, value := range values {
			if !yield(value, true) {
				return
			}
		}
	})
}
