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
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// task is one claimed message on its way through the chain.
type task struct {
	context.Context // the lease's
	row             *store.Message
	message         bus.Message
	consumer        *consumer
	lease           *lease
	queuedAt        time.Time
	fills           time.Duration // for so long its batch may wait for more
	began           time.Time     // when its chain began; zero if that is not counted
	others          []*task       // taken with it: to share transactions, or behind it in its lane
	group           *group        // the group it runs in
	worker          *worker       // while it runs
	innermost       sync.Mutex    // held while the innermost layer runs, and after the chain has ended
	probe           bool          // it may probe its consumer's circuit
	called          bool          // the consumer's function was reached
	stopped         atomic.Bool
	over            atomic.Bool // its outcome is known
	stop            stoppable   // the context of its first call
	committed       bool        // a transactional consumer has removed it
	passed          bool        // it is done: those behind it may run
}

// groupable reports whether a message, with those behind it, may share a transaction. One that has
// failed could make the others fail again.
func (t *task) groupable() bool {
	failed := func(t *task) bool { return t.row.Attempts > 0 || t.row.Crashes > 0 }
	return !failed(t) && !slices.ContainsFunc(t.others, failed)
}

// bytes returns about how much memory a task holds.
func (t *task) bytes() int { return len(t.row.Payload) + len(t.row.Headers) + len(t.row.Errors) }

// awaitBefore returns the error of the task's chain, in view of the message before it.
func (t *task) awaitBefore(err error) error {
	if t.group == nil {
		return err
	}
	return t.group.order.awaitBefore(t, err)
}

// weight returns the bytes of a task and the others taken with it.
func (t *task) weight() int {
	sum := t.bytes()
	for _, other := range t.others {
		sum += other.bytes()
	}
	return sum
}

// String keeps the message out of log lines that print the context.
func (t *task) String() string { return "outbox.task" }

// newTask turns a claimed row into a message for its consumer.
func newTask(t *task, row *store.Message, c *consumer, l *lease, now time.Time) {
	*t = task{
		Context: l.ctx, row: row, consumer: c, lease: l, queuedAt: now,
		message: bus.Message{
			ID: row.MessageID, PayloadType: row.PayloadType, Payload: row.Payload, Headers: store.Headers(row.Headers),
			InsertID: row.InsertID, OrderingKey: row.OrderKey, Group: row.GroupKey,
			Consumer: c.Name(), ConsumerAlias: row.ConsumerType, Config: &c.settings, Attempt: row.Attempts + 1, CrashCount: row.Crashes,
			CreatedAt: row.CreatedAt.Time, AvailableAt: row.AvailableAfter.Time,
		},
	}
	row.Deliver(&t.message)
}

// result converts the outcome of the chain into the result to settle.
func (t *task) result(v bus.OutcomeError, attemptDelay time.Duration) store.Result {
	r := store.Result{
		Claim: t.lease.id, Message: t.row.ID, Delay: v.Delay, Reason: v.Reason, Lane: t.row.Lane, Rank: t.row.Rank,
		Parks: t.consumer.settings.Ordered == bus.BlockKey, Group: t.row.GroupKey,
	}
	if t.committed { // the message is gone, whatever outer layers return
		r.Outcome, r.Gone = store.Release, true
		return r
	}
	switch v.Outcome {
	case bus.Done, bus.Discarded:
		r.Outcome = store.Done
		if !t.cancelled(v) {
			r.Recent = t.recent()
		}
		r.Kept = t.kept(v)
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
	case bus.Condemned: // no layer applied the outcome
		r.Outcome, r.Delay = store.Failed, attemptDelay
	default:
		r.Outcome, r.Delay = store.Snoozed, attemptDelay
	}
	r.Errors = t.errors(&v, false)
	return r
}

// warnOf logs an outcome that has no effect: layers further out may have reported it.
func (t *task) warnOf(v bus.OutcomeError) {
	t.worker.executor.config.Logger.Warn("outcome ignored, the consumer has committed",
		"consumer", t.consumer.Name(), "message_id", t.message.ID.String(), "outcome", v.Outcome.String(), "error", errorlog.Text(&v))
}

// kept returns what is kept of a message with an outcome, nil for a consumer that keeps nothing.
func (t *task) kept(v bus.OutcomeError) *store.Kept {
	if t.consumer.settings.Keep == 0 {
		return nil
	}
	k := &store.Kept{
		ID: t.row.ID, MessageID: t.row.MessageID, ConsumerType: t.row.ConsumerType, PayloadType: t.row.PayloadType,
		Headers: string(t.row.Headers), OrderKey: t.row.OrderKey,
		AnyOrder:  t.row.Lane != 0 && !store.Result{Lane: t.row.Lane, Rank: t.row.Rank}.InOrder(),
		CreatedAt: t.row.CreatedAt.Time, Attempts: t.message.Attempt,
		Outcome: v.Outcome.String(), Version: t.consumer.version, For: t.consumer.settings.Keep,
	}
	if v.Outcome == bus.Discarded {
		k.Reason = errorlog.Text(&v)
	}
	if errors.Is(v.Err, bus.ErrExpired) {
		k.Outcome = store.Expired
	}
	if t.consumer.settings.KeepPayload {
		k.Payload = new(string)
		if t.row.Event == nil { // else the message refers to it
			*k.Payload = string(t.row.Payload)
		}
	}
	if t.row.Event != nil && len(t.row.Payload) == 0 { // it has been erased
		k.Headers, k.Payload = "", nil
	}
	if t.called {
		k.StartedAt, k.Took = t.began.Add(t.lease.ahead), time.Since(t.began)
	}
	return k
}

// recent returns the message's insert id if it stays taken after the message was consumed, else
// nil.
func (t *task) recent() *store.Recent {
	if t.message.UniqueFor <= 0 || t.row.InsertID == "" {
		return nil
	}
	key := store.PendingKey{InsertID: t.row.InsertID, ConsumerType: t.message.ConsumerAlias}
	return &store.Recent{PendingKey: key, For: t.message.UniqueFor}
}

// errors returns the message's list of errors with err added.
func (t *task) errors(err error, uncounted bool) string {
	return errorlog.Append(t.row.Errors, errorlog.Attempt{
		Attempt: t.message.Attempt, At: time.Now().UTC(), Error: errorlog.Text(err), Uncounted: uncounted,
	})
}

// size returns how many messages a task stands for.
func (t *task) size() int { return 1 + len(t.others) }

// together reports whether a task shares transactions or calls with the others taken with it. If
// not, they are of its lane, and it may be alone to probe a circuit.
func (t *task) together() bool {
	return len(t.others) > 0 && (t.row.Lane == 0 || t.consumer.group > 1 && t.groupable() && !t.probe)
}

// without removes matching messages from a run. It returns the rest of the run and the removed
// ones.
func (t *task) without(match func(*task) bool) (left *task, out []*task) {
	var kept []*task
	for _, m := range append([]*task{t}, t.others...) {
		if match(m) {
			out = append(out, m)
		} else {
			kept = append(kept, m)
		}
	}
	if len(out) == 0 {
		return t, nil
	}
	t.others = nil
	if len(kept) == 0 {
		return nil, out
	}
	kept[0].others = slices.Clone(kept[1:])
	return kept[0], out
}
