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
	urgentDelay = 5 * time.Millisecond   // the same, where other messages wait for what is settled
	settleBatch = 2000                   // results that are settled without waiting
	unsentBatch = 5                      // batches of results beyond which claiming waits for settling
	leastUnsent = 1000                   // the same of results, where batches are small
	busyDelay   = 500 * time.Millisecond // until results are sent again whose messages were locked
	maxAside    = 15 * time.Second       // the same, of those that the database did not take, however often
)

// lease is a claim of this process that is not settled yet.
type lease struct {
	id     int64
	ctx    context.Context // of its handlers
	cancel context.CancelCauseFunc
	lanes  *lanes        // of messages with keys
	deep   []int64       // their lanes that may have more
	urgent bool          // other messages wait for each of its results
	unique bool          // producers may have messages locked that have insert ids: to settle must not wait for these
	ahead  time.Duration // of our clock is the database's

	// Guarded by ledger.mu.
	until   time.Time      // on this process's clock, from before the statement was sent
	open    int            // messages without a result
	unsent  []store.Result // results that wait to be settled
	busy    []store.Result // results to be settled again: another transaction had locked their messages
	sending int            // results that are being settled
	partial bool           // some results were settled apart, so it cannot be finished as a whole
	expired bool           // its handlers were cancelled because it could not be renewed
}

// ledger keeps this process's books: which claims it holds and which results
// are still to be settled.
type ledger struct {
	mu        sync.Mutex
	drained   sync.Cond // fetchers wait here while settling lags behind
	leases    map[int64]*lease
	unsent    int
	maxUnsent int
	first     time.Time // when the oldest unsent result came in
	busy      int
	again     time.Time     // when the busy results are sent again
	aside     time.Duration // how long that is, when it is not for a lock; 0 before
	flush     chan struct{}
	fenced    *atomic.Int64
	closed    bool
}

func newLedger(batchSize int, fenced *atomic.Int64) *ledger {
	l := &ledger{leases: make(map[int64]*lease), flush: make(chan struct{}, 1), fenced: fenced, maxUnsent: max(unsentBatch*batchSize, leastUnsent)}
	l.drained.L = &l.mu
	return l
}

// open enters a claim of n messages; until is when its lease ends at the earliest.
func (l *ledger) open(parent context.Context, id int64, n int, until time.Time) *lease {
	ctx, cancel := context.WithCancelCause(parent)
	entry := &lease{id: id, ctx: ctx, cancel: cancel, until: until, open: n}
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
	if by := time.Now().Add(urgentDelay - settleDelay); entry.urgent && by.Before(l.first) {
		l.first, urgent = by, true
	}
	if urgent || entry.open == 0 || l.unsent == 1 || l.unsent >= settleBatch {
		select {
		case l.flush <- struct{}{}:
		default: // there is a signal already
		}
	}
}

// live reports whether a claim is held for certain, as far as time goes: by the clock on the wall, too, since the other
// one stands still while a virtual machine is suspended.
func (l *ledger) live(entry *lease, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !entry.expired && l.leases[entry.id] == entry && now.Before(entry.until) && now.Round(0).Before(entry.until.Round(0))
}

// batch is what one round of settling sends.
type batch struct {
	finished []*lease // every message is done: the claims end as a whole
	settling []*lease // the others
	results  []store.Result
	whole    [][]store.Result // of the finished, should they have to be settled apart
	freeOnly bool             // some messages are locked: no statement may wait for them
	resent   bool             // with the busy ones
	aside    bool             // once sent: some are busy that are not locked
}

// byResult settles by result what could not be finished as a whole.
func (b batch) byResult() batch {
	return batch{settling: append(b.settling, b.finished...), results: append(b.results, slices.Concat(b.whole...)...), freeOnly: true, resent: b.resent}
}

func (b batch) empty() bool { return len(b.finished) == 0 && len(b.settling) == 0 }

// collect takes out what is to be settled now. When nothing is urgent it returns
// an empty batch and how long that can wait: less than nothing means for ever. Busy
// results keep their time even when it is forced.
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
	if all { // otherwise the oldest of what is left keeps its time
		l.first = now
	}
	if !b.empty() {
		l.drained.Broadcast()
	}
	if overdue = max(overdue, 0); wait < 0 || overdue < wait {
		wait = overdue
	}
	return b, wait
}

// takeLocked puts results of a claim into the batch: those that have not been sent,
// unless more of them can be awaited, and those that are sent again.
func (l *ledger) takeLocked(b *batch, entry *lease, all, resend bool) {
	var results []store.Result
	if all || entry.open == 0 {
		results, entry.unsent = entry.unsent, nil
		l.unsent -= len(results)
	}
	if resend {
		results = append(entry.busy, results...)
		l.busy -= len(entry.busy)
		entry.busy = nil
	} else if len(entry.busy) > 0 {
		var behind []store.Result
		results, behind = inTurn(results, entry.busy)
		entry.busy, l.busy = append(entry.busy, behind...), l.busy+len(behind)
	}
	if len(results) == 0 {
		return
	}
	entry.sending = len(results)
	undone := func(r store.Result) bool { return r.Outcome != store.Done || r.Recent != nil || r.Stop != "" }
	b.freeOnly = b.freeOnly || entry.unique
	if entry.open == 0 && !entry.partial && !b.freeOnly && !slices.ContainsFunc(results, undone) {
		b.finished = append(b.finished, entry)
		b.whole = append(b.whole, results)
		return
	}
	entry.partial = true
	b.settling = append(b.settling, entry)
	b.results = append(b.results, results...)
}

// confirm strikes out claims that ended, and those that turned out to be gone.
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
	for _, result := range settled.Busy { // neither renewed nor found to be gone, maybe
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
			entry.until = later(entry.until, renewed)
		case !kept[entry.id]:
			l.closeLocked(entry, bus.ErrLeaseLost)
			lost = append(lost, entry)
		}
	}
	return lost
}

// postponeLocked keeps results to be sent again. What is not locked but not taken either
// waits longer each time, since sending it may take as long as a statement can.
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

// closeLocked strikes a claim out; results that were not sent are void.
func (l *ledger) closeLocked(entry *lease, cause error) {
	if l.leases[entry.id] == entry {
		delete(l.leases, entry.id)
		l.unsent -= len(entry.unsent)
		l.busy -= len(entry.busy)
		l.fenced.Add(int64(len(entry.unsent) + len(entry.busy)))
		entry.unsent, entry.busy = nil, nil
		l.drained.Broadcast()
	}
	entry.cancel(cause)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// lose cancels the handlers of claims.
func (l *ledger) lose(leases []*lease) (lost []*lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, entry := range leases {
		if !entry.expired {
			entry.expired = true
			entry.cancel(bus.ErrLeaseLost)
			lost = append(lost, entry)
		}
	}
	return lost
}

// held lists the ids of all open claims.
func (l *ledger) held() map[int64]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := make(map[int64]bool, len(l.leases))
	for id := range l.leases {
		ids[id] = true
	}
	return ids
}

// renewed enters the answer of an extend: before is what was held when it was
// sent, held what the database still knows. Claims that it no longer knows are
// lost; unknown are claims that it knows and we do not.
func (l *ledger) renewed(before map[int64]bool, held []int64, until time.Time) (lost []*lease, unknown []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range held {
		entry, ok := l.leases[id]
		if !ok {
			unknown = append(unknown, id)
			continue
		}
		entry.until = later(entry.until, until)
		delete(before, id)
	}
	for id := range before {
		// A claim with all results in is being settled just now: not held any
		// more, and not lost either.
		if entry, ok := l.leases[id]; ok && entry.open > 0 {
			l.closeLocked(entry, bus.ErrLeaseLost)
			lost = append(lost, entry)
		}
	}
	return lost, unknown
}

// expire cancels the handlers of claims whose lease ends before the given
// instant. Their results are still settled, if the database lets them.
func (l *ledger) expire(before time.Time) (expired []*lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, entry := range l.leases {
		if !entry.expired && entry.open > 0 && entry.until.Before(before) {
			entry.expired = true
			entry.cancel(bus.ErrLeaseLost)
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

// putAside is the number of results that are to be sent again.
func (l *ledger) putAside() int {
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
