package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/presence"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// consumer is a registered consumer with its resolved settings and what the
// dispatcher keeps about it.
type consumer struct {
	bus.Consumer
	settings      bus.ConsumerConfig
	tally         *presence.Tally
	transactional bool
	group         int           // how many messages may run together
	circuit       *flow.Circuit // nil if it has none
	breaker       *breaker      // nil if it has none; else it is its circuit
	limiter       *limiter
	rate          *store.Rate // nil if it has none
	spent         *spent      // of its rate
	wants         []int       // indexes of its wants

	// Guarded by dispatcher.mu.
	queue      []*task
	waiting    int       // messages in the queue
	running    int       // a group counts once
	reserved   int       // asked for by claims under way
	active     bool      // may have messages to claim
	wakeups    int       // counts activations, to notice one during a claim
	suspects   suspicion // which of its messages may have crashed, and are to be asked for
	finished   rate
	lanes      []*lanes      // where it has messages with keys
	unused     int           // messages that were claimed of its rate and did not start
	plainFirst bool          // those without keys come first in the next claim
	pace       time.Duration // how long one of those takes; 0: unknown

	fillsUntil time.Time // when workers look again for a batch that is not full

	announced bool      // a commit was announced, and no claim has come back since
	expected  time.Time // until then a message may be committed unannounced
	failures  int       // of claims for it alone, in a row
	notBefore time.Time // it is claimed for, since they failed
}

// task is one claimed message on its way through the chain.
type task struct {
	context.Context // the lease's
	row             store.Message
	message         bus.Message
	consumer        *consumer
	lease           *lease
	queuedAt        time.Time
	began           time.Time  // its chain; zero where that is not counted
	others          []*task    // that were taken with it: to share transactions, or of its lane behind it
	group           *group     // they and it, while they run
	worker          *worker    // while it runs
	innermost       sync.Mutex // held while the innermost layer runs, and from the end of the chain on
	probe           bool       // it has the right to probe its consumer's circuit
	called          bool       // its consumer's function was reached
	stopped         atomic.Bool
	over            atomic.Bool // its outcome is known
	stop            stoppable   // the context of its first call
	committed       bool        // a transactional consumer has removed it
	passed          bool        // it is done, and those behind it may run
}

// groupable reports whether a message, with those behind it, may share a transaction. One that
// has failed could take the others down once more.
func (t *task) groupable() bool {
	failed := func(t *task) bool { return t.row.Attempts > 0 || t.row.Crashes > 0 }
	return !failed(t) && !slices.ContainsFunc(t.others, failed)
}

// bytes is what a task keeps in memory, about.
func (t *task) bytes() int { return len(t.row.Payload) + len(t.row.Headers) + len(t.row.Errors) }

// inTurn is what to make of the error of its chain, in view of the message before it.
func (t *task) inTurn(err error) error {
	if t.group == nil {
		return err
	}
	return t.group.turns.inTurn(t, err)
}

// weight is what it keeps with the others that were taken with it.
func (t *task) weight() int {
	sum := t.bytes()
	for _, other := range t.others {
		sum += other.bytes()
	}
	return sum
}

// String keeps a log line that prints the context from printing the message with it.
func (t *task) String() string { return "outbox.task" }

// newTask turns a claimed row into a message for its consumer.
func newTask(t *task, row store.Message, c *consumer, l *lease, now time.Time) {
	*t = task{
		Context: l.ctx, row: row, consumer: c, lease: l, queuedAt: now,
		message: bus.Message{
			ID: row.MessageID, PayloadType: row.PayloadType, Payload: row.Payload, Headers: store.Headers(row.Headers), InsertID: row.InsertID, OrderingKey: row.OrderKey,
			Consumer: c.Name(), ConsumerAlias: row.ConsumerType, Config: &c.settings, Attempt: row.Attempts + 1, CrashCount: row.Crashes,
			CreatedAt: row.CreatedAt.Time, AvailableAt: row.AvailableAfter.Time,
		},
	}
	row.Deliver(&t.message)
}

// result turns what the chain returned into what is settled.
func (t *task) result(v bus.OutcomeError, attemptDelay time.Duration) store.Result {
	r := store.Result{Claim: t.lease.id, Message: t.row.ID, Delay: v.Delay, Reason: v.Reason, Lane: t.row.Lane, Rank: t.row.Rank, Parks: t.consumer.settings.Ordered == bus.BlockKey}
	if t.committed { // the message is gone, whatever outer layers say
		r.Outcome = store.Release
		return r
	}
	switch v.Outcome {
	case bus.Done, bus.Discarded:
		r.Outcome, r.Recent = store.Done, t.recent()
		return r
	case bus.Released:
		r.Outcome = store.Release
		return r
	case bus.Snoozed:
		r.Outcome = store.Snoozed
		if errors.Is(v.Err, bus.ErrNotCounted) {
			r.Errors = t.errors(v.Err, true)
		}
		return r
	case bus.Retried:
		r.Outcome = store.Failed
	case bus.Poisoned:
		r.Outcome = store.Poison
	case bus.Condemned: // no layer carried the outcome out
		r.Outcome, r.Delay = store.Failed, attemptDelay
	default:
		r.Outcome, r.Delay = store.Snoozed, attemptDelay
	}
	r.Errors = t.errors(&v, false)
	return r
}

// recent is the message's insert id, if it stays taken once the message was consumed.
func (t *task) recent() *store.Recent {
	if t.message.UniqueFor <= 0 || t.row.InsertID == "" {
		return nil
	}
	return &store.Recent{PendingKey: store.PendingKey{InsertID: t.row.InsertID, ConsumerType: t.message.ConsumerAlias}, For: t.message.UniqueFor}
}

// errors is the message's list of errors with one more.
func (t *task) errors(err error, uncounted bool) string {
	return errorlog.Append(t.row.Errors, errorlog.Attempt{Attempt: t.message.Attempt, At: time.Now().UTC(), Error: errorlog.Text(err), Uncounted: uncounted})
}

// rate counts events of the last second in eighths.
type rate struct {
	slots [8]int
	at    int64 // the slot that was counted last, in eighths of a second
}

func eighths(t time.Time) int64 { return t.UnixMilli() / 125 }

func (r *rate) add(now time.Time, n int) {
	r.forget(now)
	r.slots[eighths(now)%8] += n
}

func (r *rate) lastSecond(now time.Time) int {
	r.forget(now)
	sum := 0
	for _, n := range r.slots {
		sum += n
	}
	return sum
}

func (r *rate) forget(now time.Time) {
	slot := eighths(now)
	if slot < r.at { // the clock was set back
		*r = rate{}
	}
	for i := max(r.at+1, slot-7); i <= slot; i++ {
		r.slots[i%8] = 0
	}
	r.at = max(r.at, slot)
}
