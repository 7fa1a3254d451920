package dialect

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// Message is a row of consumer_messages as a claim returns it.
type Message struct {
	ID             int64     `bun:"id"`
	MessageID      uuid.UUID `bun:"message_id"`
	ConsumerType   string    `bun:"consumer_type"`
	PayloadType    string    `bun:"payload_type"`
	Payload        []byte    `bun:"payload"`
	Headers        []byte    `bun:"headers"`
	InsertID       string    `bun:"insert_id"`
	CreatedAt      Moment    `bun:"created_at"`
	AvailableAfter Moment    `bun:"available_after"`
	Attempts       int       `bun:"attempts"`
	Crashes        int       `bun:"crashes"`
	Errors         string    `bun:"errors"`
	GroupKey       string    `bun:"group_key"` // the group of outbox.Group, if it is in one
	Steps          string    `bun:"steps"`     // only if they were asked for

	// Of a message with a key: the key, its lane, and the message's place in the lane. A lane of 0
	// is none.
	OrderKey string `bun:"order_key"`
	Lane     int64  `bun:"lane"`
	Rank     int64  `bun:"rank"`

	// Event is what the message refers to, once [EventStore.FillIn] has read it.
	Event *Event `bun:"-"`
}

// Moment reads an instant in the form each dialect stores it: a timestamp, or
// microseconds since 1970 UTC.
type Moment struct{ time.Time }

// Scan implements sql.Scanner. A value that it cannot read, such as an infinite instant written by
// hand, becomes the zero instant: an error would block everything read with it.
func (m *Moment) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		m.Time = time.Time{}
	case time.Time:
		m.Time = v.UTC()
	case int64:
		m.Time = time.UnixMicro(v).UTC()
	case []byte: // an older MariaDB driver returns numbers like this
		n, _ := strconv.ParseInt(string(v), 10, 64)
		m.Time = time.UnixMicro(n).UTC()
	default:
		m.Time = time.Time{}
	}
	return nil
}

// Position is a place in the order in which messages are claimed.
type Position struct {
	At time.Time
	ID int64
}

// Before reports whether p comes before q.
func (p Position) Before(q Position) bool {
	return p.At.Before(q.At) || p.At.Equal(q.At) && p.ID < q.ID
}

// Micros returns the instant as dialects without a type for instants write it.
func (p Position) Micros() int64 {
	if p.At.IsZero() {
		return math.MinInt64
	}
	return p.At.UnixMicro()
}

// Want asks for messages of one stored consumer type and payload type.
type Want struct {
	Consumer string
	Payload  string
	// Limit is the number of messages to claim at most.
	Limit int
	// After skips everything up to and including this place, which saves walking dead index
	// entries. The zero value means the start.
	After Position
}

// Poll is what one poll of the tables found to do.
type Poll struct {
	// Due lists the indexes of the wants that have messages to claim, First the place of the first
	// message of each.
	Due   []int
	First []Position
	// Suspects lists the indexes of the wants with due messages that crashed once, Killers those
	// with messages that crashed more often.
	Suspects, Killers []int
	// Expired is true if a claim has outlived its lease, the first by Overdue. Lease is the time
	// until the first of the others does, if it is not renewed; zero if there is none.
	Expired bool
	Overdue time.Duration
	Lease   time.Duration
	// Next is the time until the next message that is not due yet; zero when
	// there is none.
	Next time.Duration
	// Now is the database's clock at the time of the look.
	Now time.Time
}

// Selection is which messages a claim may take.
type Selection uint8

// The selections.
const (
	// Clean messages have never crashed since they last ran to an outcome.
	Clean Selection = iota
	// Suspects crashed once: few at a time at first, beside the clean ones.
	Suspects
	// Killers crashed more often: one at a time, until enough have survived that.
	Killers
)

// ClaimRequest asks for messages under a new lease.
type ClaimRequest struct {
	Owner string
	Lease time.Duration
	Wants []Want
	// Select is which messages to claim. The limits of the wants apply only to Clean. Limit bounds
	// all wants together; for Clean, zero means no such bound.
	Select Selection
	Limit  int
	// Solo records that the process has no other crashed message in flight.
	Solo bool
	// MaxBytes bounds the payloads, events, headers and errors claimed; the first
	// message is always taken.
	MaxBytes int
	// Ageing is the head start of a level of priority. All wants are then of one consumer. Zero
	// ignores priorities.
	Ageing time.Duration
	// Lanes asks for messages with keys instead, of one consumer.
	Lanes *Lanes
	// Stuck are where to look for crashed messages with keys if no others were found, unless Select
	// is Clean.
	Stuck []Lanes
	// Rate bounds how many messages may be claimed in a time, in all processes together. All wants
	// are then of one consumer. Nil means no such bound.
	Rate *Rate
	// Unused is how many messages the rate has counted that did not start. The claim returns them to
	// the rate, also if it brings nothing.
	Unused int
}

// Rate is how many messages a consumer starts in a time: N in each Per, and up to Burst at once
// after it has started fewer.
type Rate struct {
	Name  string
	N     int
	Per   time.Duration
	Burst int
}

// Claim is a leased batch. An ID of zero means that nothing was claimed.
type Claim struct {
	ID       int64
	Messages []Message
	// Sent is when the lease began at the earliest: on this process's clock, right
	// before the statement that grants it was sent.
	Sent time.Time
	// Found is how many messages were found for each want, claimed or not.
	Found []int
	// Last is the place of the last message of each want.
	Last []Position
	// Dropped is, for each want, the place of the first message that was locked and not claimed:
	// other claims may have skipped it. It is empty if there was none.
	Dropped []Position
	// Unasked is true if the rate allowed nothing, so there was no look.
	Unasked bool
	// Cut is true when MaxBytes, or the rate, left messages behind, or some of Stuck was not looked at.
	Cut bool
	// Wait is how long the rate allows no more; zero if it is not spent.
	Wait time.Duration
	// News are the results of a claim of lanes.
	News LaneNews
}

// Outcome is what Settle writes for a message.
type Outcome string

// The outcomes of a settle.
const (
	Done    Outcome = "done"    // remove the message
	Failed  Outcome = "failed"  // count an attempt, run again after Delay
	Snoozed Outcome = "snooze"  // run again after Delay
	Poison  Outcome = "poison"  // move to the poisoned messages
	Release Outcome = "release" // give back untouched
)

// Result is the outcome of one claimed message.
type Result struct {
	Claim   int64
	Message int64
	Outcome Outcome
	// Gone means that a committed transaction has removed the message.
	Gone  bool
	Delay time.Duration
	// Errors replaces the message's list of errors; empty leaves it.
	Errors string
	// Reason is why a message is poisoned, and Fingerprint identifies its group.
	Reason, Fingerprint string
	// Lane and Rank are those of a message with a key. Parks means that it keeps those behind it
	// from running once it is poisoned.
	Lane, Rank int64
	Parks      bool
	// Recent is the insert id of a message that is done, if it stays taken.
	Recent *Recent
	// Stop answers a request to stop the run, if there was one.
	Stop string
	// Group is the group that the message is in, if any.
	Group string
	// Kept is what is kept of a message that is done. Nil keeps nothing.
	Kept *Kept
}

// InOrder reports whether the message runs in the order of its key.
func (r Result) InOrder() bool { return r.Lane != 0 && r.Rank < firstInstant }

// Settled is the result of a settle.
type Settled struct {
	// Live lists the claims that were still held.
	Live []int64
	// Applied is the number of results written; the others were fenced, or are Busy.
	Applied int
	// Busy are results that still count, but whose messages another transaction has locked.
	Busy []Result
}

// Finished is a claim that ended with all of its messages done.
type Finished struct {
	Claim    int64 `bun:"id"`
	Messages int   `bun:"messages"`
}

// Recovered counts what a recovery found.
type Recovered struct {
	Claims   int `bun:"claims"`
	Crashed  int `bun:"crashed"`
	Poisoned int `bun:"poisoned"`
}

// Unhandled is a kind of message that no consumer in this process takes.
type Unhandled struct {
	ConsumerType string `bun:"consumer_type"`
	PayloadType  string `bun:"payload_type"`
}

// Fence identifies claimed messages in the state in which they were claimed.
type Fence struct {
	Owner    string
	Messages []Fenced
	// Idle bounds how long the server keeps the transaction open without a statement, in case this
	// process vanishes.
	Idle time.Duration
	// Session is set to the session of the transaction. Optional.
	Session *Session
}

// Session is where and since when a transaction runs, for [ClaimStore.Interrupt]. The zero value is no
// session.
type Session struct {
	PID   int64 `bun:"pid"`
	Begun int64 `bun:"begun"` // microseconds since 1970
	// Path and Role are the search path and role of statements that run after a function of the
	// application, which may have changed them.
	Path string `bun:"path"`
	Role string `bun:"role"`
}

// Fenced is one message of a [Fence].
type Fenced struct {
	Claim    int64
	ID       int64
	Attempts int
	Crashes  int
	Lane     int64
}

// CrashReason returns the reason of a message that was poisoned by recovery.
func CrashReason(crashes int) string { return fmt.Sprintf("process lost %d times", crashes) }
