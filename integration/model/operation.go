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
	// Pass moves the clock.
	Pass(d time.Duration)
	View() View
}

// MaxCrashes is how many solo crashes poison a message.
const MaxCrashes = 3

// Lease is the length of every lease.
const Lease = 30 * time.Second

// Produce is one message for some consumers, in a transaction that may be rolled
// back.
type Produce struct {
	Message    int
	Consumers  []string // in order
	Delay      time.Duration
	InsertID   string
	RolledBack bool
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
	// Kind is produce, claim, settle, finish, extend, disclaim, recover, transact
	// or pass, or part of one: fence and commit, of transact.
	Kind    string
	Owner   string
	Results []Result
	Produce Produce
	Key     Key          // of fence, commit, transact
	Locked  map[Key]bool // rows that others have locked
}
