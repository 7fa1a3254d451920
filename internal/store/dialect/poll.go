package dialect

import "time"

// PollExtent is what a poll looks for.
type PollExtent int

// Each extent includes the ones before it.
const (
	PollDue  PollExtent = iota // due and clean messages
	PollNow                    // crashed messages, leases and the clock
	PollNext                   // when the next message is due
)

// Finding is one thing that a poll found.
type Finding struct {
	Kind  int    `bun:"kind"`
	Value int64  `bun:"value"`
	ID    int64  `bun:"id"`
	At    Moment `bun:"at"`
}

// The kinds of findings, as the statements of the dialects number them.
const (
	foundDue      = 0 // value: index of the want; and the place of its first message
	foundSuspects = 1
	foundKillers  = 2
	foundLease    = 3 // value: microseconds until the first ends; if one is ahead, minus its length
	foundNext     = 4 // value: microseconds
	foundNow      = 5 // the database's clock
)

// Add adds the poll of a part of the wants, whose first has the index from. The time of the first
// part is kept: every part began after it.
func (p *Poll) Add(part Poll, from int) {
	shifted := func(wants []int) []int {
		for i := range wants {
			wants[i] += from
		}
		return wants
	}
	p.Due, p.First = append(p.Due, shifted(part.Due)...), append(p.First, part.First...)
	p.Suspects, p.Killers = append(p.Suspects, shifted(part.Suspects)...), append(p.Killers, shifted(part.Killers)...)
	p.Expired, p.Overdue, p.Lease = part.Expired, part.Overdue, part.Lease // of all claims
	if p.Next == 0 || part.Next != 0 && part.Next < p.Next {
		p.Next = part.Next
	}
	if p.Now.IsZero() {
		p.Now = part.Now
	}
}

// NewPoll builds a poll from its findings.
func NewPoll(found []Finding) Poll {
	var p Poll
	for _, f := range found {
		switch f.Kind {
		case foundDue:
			p.Due, p.First = append(p.Due, int(f.Value)), append(p.First, Position{At: f.At.Time, ID: f.ID})
		case foundSuspects:
			p.Suspects = append(p.Suspects, int(f.Value))
		case foundKillers:
			p.Killers = append(p.Killers, int(f.Value))
		case foundLease:
			p.Expired = f.Value < 0
			p.Lease, p.Overdue = time.Duration(max(f.Value, 0))*time.Microsecond, time.Duration(max(-f.Value, 0))*time.Microsecond
		case foundNext:
			p.Next = wait(f.Value)
		case foundNow:
			p.Now = f.At.Time
		}
	}
	return p
}
