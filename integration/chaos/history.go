package chaos

import (
	"fmt"
	"slices"
	"time"
)

// A Change is what one committed statement did to a claim or to messages, as the
// database itself noted it. A history of changes is in the order in which the
// statements ended.
type Change struct {
	At       time.Time
	Tx       string // the transaction, by its number
	Session  string // who did it: the name of a worker, as its connections give it
	Kind     ChangeKind
	Claim    int64     // of a change to a claim
	Until    time.Time // when its lease ends, or would have
	Messages []int64   // what the claim holds from now on, or held until now; else the messages
}

// ChangeKind is what a change was.
type ChangeKind string

// The kinds of changes.
const (
	Claimed ChangeKind = "claimed" // a claim was made
	Kept    ChangeKind = "kept"    // its lease was renewed, or messages left it
	Ended   ChangeKind = "ended"   // it was removed
	Written ChangeKind = "written" // messages were removed or put off, or an attempt or a crash was counted
)

// books are the claims as a history tells them.
type books struct {
	runs   map[int64]Run // the messages
	live   map[int64]*holding
	holder map[int64]int64           // the live claim of each message
	last   map[int64][]stretch       // who had it, one after the other
	let    map[string]map[int64]bool // what each transaction took out of a claim
	twice  []Run
	taken  []Run
}

// RunBy is a run on a worker.
type RunBy struct {
	Run
	Worker string
}

// Claimed is when each worker claimed a run for the first time.
func (e Evidence) Claimed() map[RunBy]time.Time {
	first := make(map[RunBy]time.Time)
	for _, c := range e.History {
		if c.Kind != Claimed {
			continue
		}
		for _, id := range c.Messages {
			if k := (RunBy{e.Messages[id], c.Session}); first[k].IsZero() {
				first[k] = c.At
			}
		}
	}
	return first
}

// unclaimed finds runs that began on a worker that had never claimed them.
func (e Evidence) unclaimed() (found []Run) {
	first := e.Claimed()
	for _, event := range e.Ledger {
		if at := first[event.By()]; event.Kind == Started && (at.IsZero() || event.At.Before(at)) {
			found = append(found, event.By().Run)
		}
	}
	return found
}

// holding is a claim while it lives.
type holding struct {
	session  string
	messages map[int64]bool
}

// stretch begins when somebody claims a message, and ends when the next one does.
type stretch struct {
	from    int // position in the history
	session string
}

// audit reads the claims' history. It finds messages that were in two live claims
// (I3), messages that were taken from somebody whose lease had not run out, and
// messages that were written under a claim that did not hold them (I4).
func (e Evidence) audit() (twice, taken, stale []Run) {
	b := &books{
		runs: e.Messages, live: make(map[int64]*holding), holder: make(map[int64]int64),
		last: make(map[int64][]stretch), let: make(map[string]map[int64]bool),
	}
	for i, c := range e.History {
		switch c.Kind {
		case Claimed:
			b.claimed(i, c)
		case Kept, Ended:
			b.reduced(c)
		case Written:
			if e.Operator != "" && c.Session == e.Operator { // an operator may write only to unclaimed messages
				stale = append(stale, b.held(c.Messages)...)
			}
		}
	}
	tx := set(e.Tx)
	for i, c := range e.History {
		if c.Kind != Written || e.Operator != "" && c.Session == e.Operator {
			continue
		}
		for _, id := range c.Messages {
			run := b.runs[id]
			// A transactional consumer removes its message before the claim lets go
			// of it, and has it locked: nobody else can have claimed it since.
			if !b.let[c.Tx][id] && !(tx[run.Consumer] && b.lastHolder(id, i) == c.Session) {
				stale = append(stale, run)
			}
		}
	}
	return b.twice, b.taken, stale
}

func (b *books) claimed(at int, c Change) {
	h := &holding{session: c.Session, messages: make(map[int64]bool)}
	b.live[c.Claim] = h
	for _, id := range c.Messages {
		if _, held := b.holder[id]; held || h.messages[id] {
			b.twice = append(b.twice, b.runs[id])
		}
		h.messages[id], b.holder[id] = true, c.Claim
		b.last[id] = append(b.last[id], stretch{from: at, session: c.Session})
	}
}

// reduced enters what a claim has lost. Only its owner may take anything out of it,
// or renew it, until its lease has run out.
func (b *books) reduced(c Change) {
	h := b.live[c.Claim]
	if h == nil { // it came back
		b.twice = append(b.twice, b.named(c.Messages)...)
		return
	}
	left := set(c.Messages)
	if c.Kind == Ended {
		left = nil
		delete(b.live, c.Claim)
	}
	if c.Session != h.session && !(c.Kind == Ended && c.Until.Before(c.At)) {
		b.taken = append(b.taken, b.named(c.Messages)...)
	}
	for id := range h.messages {
		if left[id] {
			continue
		}
		delete(h.messages, id)
		if b.holder[id] == c.Claim {
			delete(b.holder, id)
		}
		if b.let[c.Tx] == nil {
			b.let[c.Tx] = make(map[int64]bool)
		}
		b.let[c.Tx][id] = true
	}
	for id := range left {
		if !h.messages[id] { // it never was in it
			b.twice = append(b.twice, b.runs[id])
		}
	}
}

// lastHolder is who had claimed a message last, before the position.
func (b *books) lastHolder(id int64, before int) (session string) {
	for _, s := range b.last[id] {
		if s.from < before {
			session = s.session
		}
	}
	return session
}

// held are those of the messages that are claimed.
func (b *books) held(ids []int64) []Run {
	return b.named(slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return b.holder[id] == 0 }))
}

func (b *books) named(ids []int64) (runs []Run) {
	for _, id := range ids {
		runs = append(runs, b.runs[id])
	}
	return runs
}

// Term is what a ledger and a history tell together about one run of a consumer:
// when it began and ended, and when the lease under which it ran did.
type Term struct {
	Run
	Worker     string
	Began, End time.Time
	Until      time.Time // of the lease, as it stood when the consumer ended
}

// Left is how much of the lease was left when the consumer ended.
func (t Term) Left() time.Duration { return t.Until.Sub(t.End) }

// Terms are the runs of consumers that reported an end, under the lease that the
// database had granted.
func (e Evidence) Terms() (terms []Term, err error) {
	ids := make(map[Run]int64)
	for id, run := range e.Messages {
		ids[run] = id
	}
	leases := e.leases()
	began := make(map[Run]Event)
	for _, event := range e.Ledger {
		run := Run{event.Consumer, event.Job}
		if event.Kind == Started {
			began[run] = event
			continue
		}
		start, ok := began[run]
		if !ok || start.Worker != event.Worker {
			continue // somebody else is at it by now: the overlaps tell
		}
		until := time.Time{}
		for _, l := range leases[ids[run]] {
			if l.session == event.Worker && l.from.Before(start.At) {
				until = l.at(event.At)
			}
		}
		if until.IsZero() {
			return nil, fmt.Errorf("chaos: %v ran on %s at %s, without a claim", run, event.Worker, start.At)
		}
		terms = append(terms, Term{Run: run, Worker: event.Worker, Began: start.At, End: event.At, Until: until})
	}
	return terms, nil
}

// grant is the life of a claim: who made it, when, and until when it was leased.
type grant struct {
	session string
	from    time.Time
	steps   []Change
}

// at is until when the claim was leased, as of an instant.
func (g *grant) at(t time.Time) (until time.Time) {
	for _, step := range g.steps {
		if !step.At.After(t) {
			until = step.Until
		}
	}
	return until
}

// leases are the claims that each message was in, in their order.
func (e Evidence) leases() map[int64][]*grant {
	byClaim, byMessage := make(map[int64]*grant), make(map[int64][]*grant)
	for _, c := range e.History {
		switch c.Kind {
		case Claimed:
			g := &grant{session: c.Session, from: c.At, steps: []Change{c}}
			byClaim[c.Claim] = g
			for _, id := range c.Messages {
				byMessage[id] = append(byMessage[id], g)
			}
		case Kept:
			if g := byClaim[c.Claim]; g != nil {
				g.steps = append(g.steps, c)
			}
		}
	}
	return byMessage
}

// Strikes are the kills that each run met while it was in flight, and how many
// consumers each worker had started that was killed, of what it held. What a worker
// still held shows in the history: another ended the claim, after the kill.
func (e Evidence) Strikes(killed map[string]time.Time) (struck map[Run]int, running map[string]int) {
	struck, running = make(map[Run]int), make(map[string]int)
	last := make(map[RunBy]time.Time)
	for _, event := range e.Ledger {
		last[event.By()] = event.At
	}
	claims, written := make(map[int64]Change), make(map[int64]Change)
	for _, c := range e.History {
		switch c.Kind {
		case Claimed:
			claims[c.Claim] = c
		case Written:
			for _, id := range c.Messages {
				written[id] = c
			}
		}
		made := claims[c.Claim]
		if at, dead := killed[made.Session]; c.Kind != Ended || !dead || c.Session == made.Session || c.At.Before(at) {
			continue
		}
		for _, id := range c.Messages {
			run := e.Messages[id]
			if w := written[id]; w.Session == made.Session && w.At.After(made.At) {
				continue // done, and only the claim had not let go of it
			}
			struck[run]++
			if last[RunBy{run, made.Session}].After(made.At) {
				running[made.Session]++
			}
		}
	}
	return struck, running
}
