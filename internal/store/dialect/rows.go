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

	// Of a message with a key: the key, its lane, and the message's place in that. A lane of
	// 0 is none.
	OrderKey string `bun:"order_key"`
	Lane     int64  `bun:"lane"`
	Rank     int64  `bun:"rank"`

	// Event is what the message refers to, once [Store.FillIn] has read it.
	Event *Event `bun:"-"`
}

// Moment reads an instant in the form each dialect stores it: a timestamp, or
// microseconds since 1970 UTC.
type Moment struct{ time.Time }

// Scan implements sql.Scanner. What it cannot read, such as an infinite instant that somebody
// has written by hand, is the zero one: an error would hold up whatever is read with it.
func (m *Moment) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		m.Time = time.Time{}
	case time.Time:
		m.Time = v.UTC()
	case int64:
		m.Time = time.UnixMicro(v).UTC()
	case []byte: // what an older driver of MariaDB makes of a number
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

// Before tells whether p comes before q.
func (p Position) Before(q Position) bool {
	return p.At.Before(q.At) || p.At.Equal(q.At) && p.ID < q.ID
}

// Micros is the instant as the dialects write it that have no type for instants.
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
	// After skips everything up to and including this place, which saves walking
	// dead index entries; the zero value means the start.
	After Position
}

// Probe is what one look at the tables found to do.
type Probe struct {
	// Due lists the indexes of the wants that have messages to claim, First where
	// the first of each is.
	Due   []int
	First []Position
	// Suspects lists the indexes of the wants of which messages are due that crashed once, Killers those
	// of which some crashed more often.
	Suspects, Killers []int
	// Expired is true when a claim has outlived its lease, the first by Overdue. Lease is the
	// time until the first of the others does, if it is not renewed; zero when there is none.
	Expired bool
	Overdue time.Duration
	Lease   time.Duration
	// Next is the time until the next message that is not due yet; zero when
	// there is none.
	Next time.Duration
	// Now is the database's clock, at the look.
	Now time.Time
}

// Selection says which messages a claim may take.
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
	// Select says which messages. The limits of the wants apply only to Clean.
	// Limit bounds all wants together; for Clean, zero means no such bound.
	Select Selection
	Limit  int
	// Solo records that the process has no other message in flight that has crashed.
	Solo bool
	// MaxBytes bounds the payloads, events, headers and errors claimed; the first
	// message is always taken.
	MaxBytes int
	// Ageing is the head start that a level of priority is worth. All wants are of one consumer
	// then. Zero is no regard to priorities.
	Ageing time.Duration
	// Lanes asks for messages with keys instead, of one consumer.
	Lanes *Lanes
	// Stuck are where to look for messages with keys when no others were found, unless Select
	// is Clean.
	Stuck []Lanes
	// Rate bounds how many may be claimed by when, in all processes together. All wants are
	// of one consumer then. Nil is no such bound.
	Rate *Rate
	// Unused is how many messages were claimed of the rate before that did not start: a claim that
	// brings some gives them back to it.
	Unused int
}

// Rate is how many messages a consumer starts in a time: N in each Per, and up to Burst at
// once after it has started fewer.
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
	// Found says for each want how many messages were found, claimed or not.
	Found []int
	// Last says for each want where its last message was.
	Last []Position
	// Dropped says for each want where the first message was that was locked and not claimed:
	// others may have passed over it meanwhile. It is empty where there was none.
	Dropped []Position
	// Unasked is true when the rate allowed nothing, so that nothing was looked at.
	Unasked bool
	// Cut is true when MaxBytes, or the rate, left messages behind.
	Cut bool
	// Wait is for how long the rate allows no more; zero when it is not spent.
	Wait time.Duration
	// News are of a claim of lanes.
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
	Delay   time.Duration
	// Errors replaces the message's list of errors; empty leaves it.
	Errors string
	// Reason says why a message is poisoned, and Fingerprint with which others it belongs together.
	Reason, Fingerprint string
	// Lane and Rank are those of a message with a key, and Parks says whether it keeps those
	// behind it from running once it is poisoned.
	Lane, Rank int64
	Parks      bool
	// Recent is the insert id of a message that is done, if it stays taken.
	Recent *Recent
	// Stop answers a request to stop the run, if there was one.
	Stop string
}

// InOrder tells whether the message runs in the order of its key.
func (r Result) InOrder() bool { return r.Lane != 0 && r.Rank < firstInstant }

// Settled tells what a settle did.
type Settled struct {
	// Live lists the claims that were still held.
	Live []int64
	// Applied is the number of results written; the others were fenced, or are Busy.
	Applied int
	// Busy are results that still count, but whose messages somebody else has locked.
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

// Unregistered is a kind of message that nobody in this process consumes.
type Unhandled struct {
	ConsumerType string `bun:"consumer_type"`
	PayloadType  string `bun:"payload_type"`
}

// Fence identifies claimed messages in the state in which they were claimed.
type Fence struct {
	Owner    string
	Messages []Fenced
	// Idle bounds how long the server keeps the transaction open without a
	// statement, should this process vanish.
	Idle time.Duration
	// Session learns where the transaction runs. Optional.
	Session *Session
}

// Session is where and since when a transaction runs, for [Store.Interrupt]. The
// zero value is nowhere.
type Session struct {
	PID   int64 `bun:"pid"`
	Begun int64 `bun:"begun"` // microseconds since 1970
	// Path and Role are where it looks for tables, and as whom, for what is written
	// once a function of the application's, which may have set them, has run.
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

// Stored is the number of crashes as it is stored.
func (f Fenced) Stored() int {
	if f.Lane != 0 {
		return f.Crashes + hidden
	}
	return f.Crashes
}

// CrashReason is the reason given to a message that was poisoned by recovery.
func CrashReason(crashes int) string { return fmt.Sprintf("process lost %d times", crashes) }
