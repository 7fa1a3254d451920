package model

import (
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// A System is what operations are carried out on: the model, or a database.
type System interface {
	// Produce returns how many rows were written.
	Produce(p Produce) (written int)
	// Claim returns what was claimed, in order; nothing makes no claim.
	Claim(r Request) []Key
	Settle(owner string, results []Result) Settled
	// Finish returns the claims that ended, with the messages each held.
	Finish(owner string, claims []int) map[int]int
	// Extend returns the claims that are held, in order.
	Extend(owner string) []int
	Disclaim(owner string, claims []int)
	Recover() store.Recovered
	// Transact tells whether the consumer ran, and its message is gone.
	Transact(t Transaction) bool
	// Requeue tells whether a poisoned message is pending again: its insert id may be taken.
	Requeue(key Key) bool
	Discard(key Key)
	// TakeSlots returns those of the limit's slots that the owner was given, in order.
	TakeSlots(owner string, wanted int) []int
	// ExtendSlots renews slots, and returns those that the owner has, in order.
	ExtendSlots(owner string, slots []int) []int
	ReturnSlots(owner string, slots []int)
	// AnyOrder tells whether messages with keys may run in any order, and keys have rates.
	AnyOrder() bool
	// HandsOff tells whether the transaction of a produce can claim its messages.
	HandsOff() bool
	// Pass moves the clock.
	Pass(d time.Duration)
	View() View
}

// MaxCrashes is how many solo crashes poison a message.
const MaxCrashes = 3

// Lease is the length of every lease.
const Lease = 30 * time.Second

// Produce is one message for some consumers, or two, in a transaction that may be
// rolled back.
type Produce struct {
	Message    int
	Consumers  []string // in order
	Delay      time.Duration
	Payload    int
	InsertID   string
	OrderKey   string // for those of the consumers that go by keys
	Second     string // the insert id of another message behind it, or ""
	RolledBack bool
	HandOff    string // the owner whose claim its transaction writes, or ""
}

// keys are its messages, one for each consumer.
func (p Produce) keys() (keys []Key) {
	for _, consumer := range p.Consumers {
		keys = append(keys, Key{p.Message, consumer})
	}
	return keys
}

// parts are the messages of a produce, in their order.
func (p Produce) parts() []Produce {
	if p.Second == "" {
		return []Produce{p}
	}
	second := p
	second.Message, second.InsertID = p.Message+1, p.Second
	return []Produce{p, second}
}

// Request asks for messages of some consumers, at most Limit of each, or of all
// together when they have crashed.
type Request struct {
	Owner     string
	Consumers []string
	Select    store.Selection
	Limit     int
	Solo      bool
	After     []Place // hints: where to begin, for each consumer
	Lanes     Guess   // of a consumer that goes by keys
}

// Guess is what a claim of lanes is told of them. Only Run is more than a hint.
type Guess struct {
	Run    int      // how many of one lane at most
	Sticky []string // order keys that may have more
	Cursor string   // the order key behind whose lane to walk; "" is the start
	Walk   bool
}

// Place is where a message stood in the order of claims; the zero value is the
// start.
type Place struct {
	Due time.Duration
	Key Key
}

// Result is the outcome of one message that was claimed.
type Result struct {
	Claim   int
	Key     Key
	Outcome store.Outcome
	Delay   time.Duration
	Errors  string
	Reason  string
}

// Settled tells what a settle did.
type Settled struct {
	Live    []int // in order
	Applied int
}

// Transaction is a run of a transactional consumer: the fence with what was seen
// at the claim, the effect, the removal, and the commit, or not.
type Transaction struct {
	Owner             string
	Claim             int
	Key               Key
	Attempts, Crashes int
	RolledBack        bool
}

// Step is an operation, or a part of one, as the invariants see it.
type Step struct {
	// Kind is produce, claim, settle, finish, extend, disclaim, recover, transact,
	// requeue, discard or slots, or part of one: fence and commit, of transact.
	Kind    string
	Owner   string
	Results []Result
	Produce Produce
	Key     Key          // of fence, commit, transact, requeue, discard
	Locked  map[Key]bool // rows that others have locked
	Seen    *View        // what a claim that was taken apart has seen; nil is what there was before
}
