package chaos

import (
	"slices"
	"time"
)

// A Span is a stretch of time.
type Span struct{ From, To time.Time }

// Knowledge is what a run with operators, deadlines and shares knows besides.
type Knowledge struct {
	Operator   string            // the session that writes to messages without a claim
	Withdrawn  map[Run]time.Time // what it cancelled or discarded, and when at the soonest
	Moved      map[Run]bool      // what it had run earlier or later
	Deadlines  map[int]time.Time // of jobs
	Produced   map[int]Span      // jobs: from when their produce began until it was committed
	Fair       []string          // consumers that give each key its share
	Prior      []string          // consumers that go by priorities
	Priorities map[int]int       // of jobs
	Ageing     time.Duration     // what a priority is worth
	Stood      map[string][]Span // when workers stood still
	Crowd      int               // how many may come before their turn: what is claimed at once
}

const (
	// lateBy is how long a busy machine may take from the look at a deadline to the consumer.
	lateBy = 500 * time.Millisecond
	// earlyBy is by how much a process may take the database's clock to be ahead of what it is: by the time that
	// a statement takes, of those that take less than this.
	earlyBy = time.Second
)

// late finds runs that began after the deadline of their job. A worker that stood still may have
// looked at it before.
func (e Evidence) late() (found []Run) {
	for _, event := range e.Ledger {
		by, ok := e.Deadlines[event.Job]
		start := event.At
		if !event.Called.IsZero() {
			start = event.Called
		}
		stood := slices.ContainsFunc(e.Stood[event.Worker], func(s Span) bool {
			return s.From.Before(start) && s.To.After(by) && start.Before(s.To.Add(lateBy))
		})
		if ok && event.Kind == Started && start.After(by.Add(lateBy)) && !stood {
			found = append(found, Run{event.Consumer, event.Job})
		}
	}
	return found
}

// excused tells whether a run may be missing: an operator took it away, or its deadline had passed
// when its row went.
func (e Evidence) excused() func(run Run) bool {
	removed := make(map[Run]time.Time)
	for _, c := range e.History {
		for _, id := range c.Messages {
			if c.Kind == Written {
				removed[e.Messages[id]] = c.At
			}
		}
	}
	return func(run Run) bool {
		_, withdrawn := e.Withdrawn[run]
		by, limited := e.Deadlines[run.Job]
		return withdrawn || limited && removed[run].After(by.Add(-earlyBy))
	}
}

// passedBy tells whether a run needs no turn of its own any more at an instant, though it may never have been done.
func (e Evidence) passedBy(run Run, at time.Time) bool {
	since, ok := e.Withdrawn[run]
	by, limited := e.Deadlines[run.Job]
	return ok && since.Before(at) || limited && by.Add(-earlyBy).Before(at)
}

// turn is when a consumer's job was claimed for the first time, and since when it had been there.
type turn struct {
	job     int
	there   Span // from when its produce began until that was committed
	claimed time.Time
}

// turns are those of a consumer, in their order. What an operator moved has none.
func (e Evidence) turns(consumer string) (turns []turn) {
	seen := make(map[Run]bool)
	for _, c := range e.History {
		for _, id := range c.Messages {
			run := e.Messages[id]
			if c.Kind != Claimed || run.Consumer != consumer || seen[run] {
				continue
			}
			seen[run] = true
			if there, ok := e.Produced[run.Job]; ok && !e.Moved[run] {
				turns = append(turns, turn{run.Job, there, c.At})
			}
		}
	}
	return turns
}

// settling is how long before its record a claim may have looked for messages.
const settling = 200 * time.Millisecond

// Advantage is how many more messages of another key than of its own were claimed at most while a message
// of a fair consumer waited, and those for which that were more than so many. A process that stands still in the
// middle of a claim has locked what it was about to take: what waited meanwhile is left out.
func (e Evidence) Advantage(limit int) (most int, found []Run) {
	for _, consumer := range e.Fair {
		turns := e.turns(consumer)
		for i, t := range turns {
			of := make(map[string]int)
			for _, before := range slices.Backward(turns[:i]) {
				if before.claimed.Before(t.there.To.Add(settling)) {
					break
				}
				of[e.Keys[before.job]]++
			}
			if e.anyStood(t.there.To, t.claimed) {
				continue
			}
			own, others := of[e.Keys[t.job]], 0
			for _, n := range of {
				others = max(others, n)
			}
			if most = max(most, others-own); others-own > limit {
				found = append(found, Run{consumer, t.job})
			}
		}
	}
	return most, found
}

// Overtaken is how many messages that were to come later were claimed at most while one of a higher
// priority waited, and those for which that were more than so many. It leaves out what [Evidence.Advantage] does.
func (e Evidence) Overtaken(limit int) (most int, found []Run) {
	for _, consumer := range e.Prior {
		turns := e.turns(consumer)
		for i, t := range turns {
			n := 0
			for _, before := range slices.Backward(turns[:i]) {
				if before.claimed.Before(t.there.To.Add(settling)) {
					break
				}
				lead := time.Duration(e.Priorities[t.job]-e.Priorities[before.job]) * e.Ageing
				if lead > 0 && t.there.To.Add(-lead).Before(before.there.From) {
					n++
				}
			}
			if e.anyStood(t.there.To, t.claimed) {
				continue
			}
			if most = max(most, n); n > limit {
				found = append(found, Run{consumer, t.job})
			}
		}
	}
	return most, found
}

// anyStood tells whether a worker stood still in a stretch of time.
func (e Evidence) anyStood(from, to time.Time) bool {
	for _, spans := range e.Stood {
		for _, s := range spans {
			if s.From.Before(to) && s.To.Add(settling).After(from) {
				return true
			}
		}
	}
	return false
}
