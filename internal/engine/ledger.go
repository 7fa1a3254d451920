package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	settleDelay = 50 * time.Millisecond  // how long the first result of a claim waits for others
	urgentDelay = 5 * time.Millisecond   // the same, if other messages wait for it
	settleBatch = 2000                   // results that are settled without waiting
	finishBatch = 250                    // the same, of one claim that is over
	unsentBatch = 5                      // claiming waits for settling beyond this many batches of results
	leastUnsent = 1000                   // the same as a number of results, if batches are small
	busyDelay   = 500 * time.Millisecond // until results of locked messages are sent again
	maxAside    = 15 * time.Second       // the longest wait until results that the database did not take are sent again
)

// lease is a claim of this process that is not settled yet.
type lease struct {
	id     int64
	ctx    context.Context // of its handlers
	cancel context.CancelCauseFunc
	lanes  *lanes        // of messages with keys
	deep   []int64       // their lanes that may have more messages
	urgent bool          // other messages wait for each of its results
	unique bool          // it has messages with insert ids, which producers may have locked: settling must not wait
	ahead  time.Duration // the database's clock minus ours

	// until is when it ends, on this process's clock, from before the statement was sent. Nil once its
	// handlers were cancelled. Only holders of ledger.mu write it.
	until atomic.Pointer[time.Time]

	// Guarded by ledger.mu.
	open    int            // messages without a result
	unsent  []store.Result // results that wait to be settled
	busy    []store.Result // to be settled again: another transaction had locked their messages
	sending int            // results being settled
	partial bool           // some results were settled separately, so it cannot be finished as a whole
}

// live reports whether the lease holds.
func (l *lease) live(now time.Time) bool {
	until := l.until.Load()
	return until != nil && timeLeft(*until, now) > 0
}

// renew has the lease end later, unless it is over.
func (l *lease) renew(until time.Time) {
	if before := l.until.Load(); before != nil && until.After(*before) {
		l.until.Store(&until)
	}
}

// end cancels the handlers, and reports whether they were not cancelled before.
func (l *lease) end(cause error) bool {
	l.cancel(cause)
	return l.until.Swap(nil) != nil
}

// ledger records the claims that this process holds and the results still to be settled.
type ledger struct {
	mu        sync.Mutex
	drained   sync.Cond // fetchers wait here while settling lags behind
	leases    map[int64]*lease
	unsent    int
	maxUnsent int
	first     time.Time // when the oldest unsent result came in
	busy      int
	again     time.Time     // when the busy results are sent again
	aside     time.Duration // the wait of results that the database did not take; 0 before
	flush     chan struct{}
	fenced    *atomic.Int64
	closed    bool
}

func newLedger(batchSize int, fenced *atomic.Int64) *ledger {
	l := &ledger{
		leases: make(map[int64]*lease), flush: make(chan struct{}, 1), fenced: fenced,
		maxUnsent: max(unsentBatch*batchSize, leastUnsent),
	}
	l.drained.L = &l.mu
	return l
}

// open enters a claim of n messages; until is when its lease ends at the earliest.
func (l *ledger) open(parent context.Context, id int64, n int, until time.Time) *lease {
	ctx, cancel := context.WithCancelCause(parent)
	entry := &lease{id: id, ctx: ctx, cancel: cancel, open: n, unsent: make([]store.Result, 0, min(n, finishBatch))}
	entry.until.Store(&until)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases[id] = entry
	return entry
}

// add enters the result of one message.
func (l *ledger) add(entry *lease, r store.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entry.open--
	if l.leases[entry.id] != entry {
		l.fenced.Add(1) // the claim was taken away meanwhile
		return
	}
	if l.unsent == 0 {
		l.first = time.Now()
	}
	entry.unsent = append(entry.unsent, r)
	l.unsent++
	urgent := false
	if entry.urgent {
		if by := time.Now().Add(urgentDelay - settleDelay); by.Before(l.first) {
			l.first, urgent = by, true
		}
	}
	if urgent || entry.pressing() || l.unsent == 1 || l.unsent >= settleBatch {
		select {
		case l.flush <- struct{}{}:
		default: // there is a signal already
		}
	}
}

// batch is what one round of settling sends.
type batch struct {
	finished []*lease // every message is done: the claims end as a whole
	settling []*lease // the others
	results  []store.Result
	whole    [][]store.Result // of the finished, in case they are settled separately
	freeOnly bool             // some messages are locked: no statement may wait for them
	resent   bool             // contains results that were busy
	aside    bool             // set after sending: some busy messages are not locked
}

// byResult returns the batch with finished claims to be settled by result.
func (b batch) byResult() batch {
	return batch{
		settling: append(b.settling, b.finished...), results: append(b.results, slices.Concat(b.whole...)...),
		freeOnly: true, resent: b.resent,
	}
}

func (b batch) empty() bool { return len(b.finished) == 0 && len(b.settling) == 0 }

// collect removes and returns what is to be settled now. If nothing is urgent, it returns an empty
// batch and how long that can wait; below zero means forever. force does not affect busy results.
func (l *ledger) collect(now time.Time, force bool) (batch, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait := time.Duration(-1)
	if l.busy > 0 {
		wait = max(l.again.Sub(now), 0)
	}
	resend := wait == 0
	if l.unsent == 0 && !resend {
		return batch{}, wait
	}
	overdue := l.first.Add(settleDelay).Sub(now)
	all := force || overdue <= 0 || l.unsent >= settleBatch
	b := batch{freeOnly: l.busy > 0, resent: resend}
	for _, entry := range l.leases {
		l.takeLocked(&b, entry, all, resend)
	}
	if all { // otherwise the oldest remaining result keeps its time
		l.first = now
	}
	if !b.empty() {
		l.drained.Broadcast()
	}
	overdue = max(overdue, 0)
	if wait < 0 || overdue < wait {
		wait = overdue
	}
	return b, wait
}

// takeLocked adds results of a claim to the batch: unsent ones, unless more of the claim can be
// awaited, and those to be sent again.
func (l *ledger) takeLocked(b *batch, entry *lease, all, resend bool) {
	var results []store.Result
	if all || entry.pressing() {
		results, entry.unsent = entry.unsent, nil
		l.unsent -= len(results)
	}
	if resend {
		results = append(entry.busy, results...)
		l.busy -= len(entry.busy)
		entry.busy = nil
	} else if len(entry.busy) > 0 {
		var behind []store.Result
		results, behind = splitBehind(results, entry.busy)
		entry.busy, l.busy = append(entry.busy, behind...), l.busy+len(behind)
	}
	if len(results) == 0 {
		return
	}
	entry.sending = len(results)
	b.freeOnly = b.freeOnly || entry.unique
	if entry.open == 0 && !entry.partial && !b.freeOnly && !slices.ContainsFunc(results, needsSettle) {
		b.finished = append(b.finished, entry)
		b.whole = append(b.whole, results)
		return
	}
	entry.partial = true
	b.settling = append(b.settling, entry)
	b.results = append(b.results, results...)
}

// pressing reports whether a claim is over and something waits for its results: other messages of
// its keys, a producer of its insert ids, or a message that is to run again. Other small claims that
// are over wait for each other, up to settleDelay, and end in one transaction.
func (l *lease) pressing() bool {
	return l.open == 0 && (l.lanes != nil || l.unique || len(l.unsent) >= finishBatch || slices.ContainsFunc(l.unsent, awaited))
}

// needsSettle reports whether a result has more to write than that the message is removed.
func needsSettle(r store.Result) bool { return r.Kept != nil || awaited(r) }

// awaited reports whether something else waits for what a result writes.
func awaited(r store.Result) bool {
	return r.Outcome != store.Done && !r.Gone || r.Recent != nil || r.Stop != ""
}

// confirm removes claims that have ended or turned out to be lost.
func (l *ledger) confirm(b batch, finished []store.Finished, settled store.Settled, renewed time.Time) (lost []*lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ended := make(map[int64]bool, len(finished))
	for _, f := range finished {
		ended[f.Claim] = true
	}
	for _, entry := range b.finished {
		if !ended[entry.id] {
			l.fenced.Add(int64(entry.sending))
		}
		l.closeLocked(entry, nil)
	}
	live, kept := make(map[int64]bool, len(settled.Live)), make(map[int64]bool)
	for _, id := range settled.Live {
		live[id] = true
	}
	for _, result := range settled.Busy { // not renewed, but maybe not lost either
		kept[result.Claim] = true
	}
	l.fenced.Add(int64(len(b.results) - settled.Applied - len(settled.Busy)))
	l.postponeLocked(settled.Busy, b)
	for _, entry := range b.settling {
		entry.sending = 0
		switch {
		case entry.open == 0 && len(entry.unsent) == 0 && len(entry.busy) == 0:
			l.closeLocked(entry, nil)
		case live[entry.id]:
			entry.renew(renewed)
		case !kept[entry.id]:
			l.closeLocked(entry, bus.ErrLeaseLost)
			lost = append(lost, entry)
		}
	}
	return lost
}

// postponeLocked keeps results to be sent again. Those that are neither locked nor taken wait
// longer each time, since sending them can take a whole statement timeout.
func (l *ledger) postponeLocked(busy []store.Result, b batch) {
	switch {
	case b.aside && b.resent:
		l.aside = min(max(2*l.aside, 2*busyDelay), maxAside)
	case b.resent:
		l.aside = 0
	}
	if len(busy) > 0 && l.busy == 0 {
		l.again = time.Now().Add(max(l.aside, busyDelay))
	}
	for _, r := range busy {
		entry, ok := l.leases[r.Claim]
		if !ok {
			l.fenced.Add(1)
			continue
		}
		entry.partial = true
		entry.busy = append(entry.busy, r)
		l.busy++
	}
}

// closeLocked removes a claim and drops its unsent results.
func (l *ledger) closeLocked(entry *lease, cause error) {
	if l.leases[entry.id] == entry {
		delete(l.leases, entry.id)
		l.unsent -= len(entry.unsent)
		l.busy -= len(entry.busy)
		l.fenced.Add(int64(len(entry.unsent) + len(entry.busy)))
		entry.unsent, entry.busy = nil, nil
		l.drained.Broadcast()
	}
	entry.end(cause)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// lose cancels the handlers of claims and returns the claims not cancelled before.
func (l *ledger) lose(leases []*lease) (lost []*lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, entry := range leases {
		if entry.end(bus.ErrLeaseLost) {
			lost = append(lost, entry)
		}
	}
	return lost
}

// held returns the ids of all open claims.
func (l *ledger) held() map[int64]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := make(map[int64]bool, len(l.leases))
	for id := range l.leases {
		ids[id] = true
	}
	return ids
}

// renewed applies the result of an extend. before is what was held when it was sent, held what the
// database holds for us. Claims missing there are lost; unknown are claims missing here.
func (l *ledger) renewed(before map[int64]bool, held []int64, until time.Time) (lost []*lease, unknown []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range held {
		entry, ok := l.leases[id]
		if !ok {
			unknown = append(unknown, id)
			continue
		}
		entry.renew(until)
		delete(before, id)
	}
	for id := range before {
		// A claim with all results is being settled: no longer held, and not lost.
		if entry, ok := l.leases[id]; ok && entry.open > 0 {
			l.closeLocked(entry, bus.ErrLeaseLost)
			lost = append(lost, entry)
		}
	}
	return lost, unknown
}

// expire cancels the handlers of claims whose lease ends before the given instant. Their results
// are still settled if the database accepts them.
func (l *ledger) expire(before time.Time) (expired []*lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, entry := range l.leases {
		if until := entry.until.Load(); until != nil && entry.open > 0 && until.Before(before) {
			entry.end(bus.ErrLeaseLost)
			expired = append(expired, entry)
		}
	}
	return expired
}

// await waits until settling has caught up, or the ledger is closed.
func (l *ledger) await() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.unsent+l.busy > l.maxUnsent && !l.closed {
		l.drained.Wait()
	}
}

// unsettled returns the number of results to be sent again.
func (l *ledger) unsettled() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.busy
}

// close ends all waits.
func (l *ledger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.drained.Broadcast()
}
