package engine

// An internal test: what is settled when, and what counts as fenced, is
// bookkeeping between two statements that no user sees.

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func done(l *lease, message int64) store.Result {
	return store.Result{Claim: l.id, Message: message, Outcome: store.Done}
}

func TestResultsAreSettledTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(2000, new(atomic.Int64))
		entry := l.open(t.Context(), 1, 3, time.Now().Add(time.Minute))
		if _, wait := l.collect(time.Now(), false); wait >= 0 {
			t.Errorf("without results: got wait %s, want none", wait)
		}
		l.add(entry, done(entry, 1))
		if b, wait := l.collect(time.Now(), false); !b.empty() || wait != settleDelay {
			t.Errorf("the first result: got batch %+v and wait %s, want it to wait %s for others", b, wait, settleDelay)
		}
		<-time.After(settleDelay)
		b, _ := l.collect(time.Now(), false)
		if len(b.settling) != 1 || len(b.results) != 1 || len(b.finished) != 0 {
			t.Fatalf("after the delay: got %+v, want the result settled apart", b)
		}
		l.confirm(b, nil, store.Settled{Live: []int64{1}, Applied: 1}, time.Now().Add(time.Hour))
		l.add(entry, done(entry, 2))
		l.add(entry, done(entry, 3))
		if b, _ := l.collect(time.Now(), false); !b.empty() {
			t.Fatalf("the last results: got %+v, want them to wait for other claims", b)
		}
		<-time.After(settleDelay)
		b, _ = l.collect(time.Now(), false)
		if len(b.results) != 2 || len(b.finished) != 0 {
			t.Fatalf("the last results after the delay: got %+v, want them, and not as a whole claim", b)
		}
		l.confirm(b, nil, store.Settled{Live: []int64{1}, Applied: 2}, time.Now())
		if len(l.leases) != 0 || l.fenced.Load() != 0 || entry.ctx.Err() == nil {
			t.Errorf("in the end: got %d leases, %d fenced, context %v, want a closed claim", len(l.leases), l.fenced.Load(), entry.ctx.Err())
		}
	})
}

// TestAPressingClaimIsSettledAtOnce: other messages of its keys, a producer of its insert ids or a message that is to run
// again wait for its results.
func TestAPressingClaimIsSettledAtOnce(t *testing.T) {
	t.Parallel()
	for name, press := range map[string]func(*lease, *store.Result){
		"keys":       func(entry *lease, _ *store.Result) { entry.lanes = new(lanes) },
		"insert ids": func(entry *lease, _ *store.Result) { entry.unique = true },
		"failed":     func(_ *lease, r *store.Result) { r.Outcome = store.Failed },
		"released":   func(_ *lease, r *store.Result) { r.Outcome = store.Release },
		"unique for": func(_ *lease, r *store.Result) { r.Recent = new(store.Recent) },
		"stopped":    func(_ *lease, r *store.Result) { r.Stop = store.StopTooLate },
	} {
		l := newLedger(2000, new(atomic.Int64))
		plain, pressing := l.open(t.Context(), 1, 2, time.Now()), l.open(t.Context(), 2, 1, time.Now())
		l.add(plain, store.Result{Claim: 1, Message: 10, Outcome: store.Release, Gone: true})
		l.add(plain, done(plain, 11))
		r := done(pressing, 20)
		press(pressing, &r)
		l.add(pressing, r)
		b, wait := l.collect(time.Now(), false)
		if all := append(b.finished, b.settling...); len(all) != 1 || all[0] != pressing {
			t.Errorf("%s: got claims %v, want that one", name, all)
		}
		if b, _ := l.collect(time.Now().Add(wait), false); len(b.finished) != 1 || wait > settleDelay {
			t.Errorf("%s: the plain claim after %s: got %+v, want it finished as a whole within %s", name, wait, b, settleDelay)
		}
	}
}

func TestClaimThatIsAllDoneIsFinishedAsAWhole(t *testing.T) {
	t.Parallel()
	l := newLedger(2000, new(atomic.Int64))
	whole, mixed := l.open(t.Context(), 1, 2, time.Now()), l.open(t.Context(), 2, 2, time.Now())
	for _, entry := range []*lease{whole, mixed} {
		l.add(entry, done(entry, entry.id*10))
	}
	l.add(whole, done(whole, 11))
	l.add(mixed, store.Result{Claim: 2, Message: 21, Outcome: store.Failed})
	b, _ := l.collect(time.Now(), true)
	if len(b.finished) != 1 || b.finished[0] != whole || len(b.results) != 2 {
		t.Fatalf("got %+v, want claim 1 finished and the results of claim 2", b)
	}
	l.confirm(b, nil, store.Settled{Applied: 1}, time.Now())
	if l.fenced.Load() != 3 {
		t.Errorf("fenced: got %d, want 2 of the claim that was gone and 1 that was not applied", l.fenced.Load())
	}
}

func TestLeaseLostWhileConsumersRun(t *testing.T) {
	t.Parallel()
	l := newLedger(2000, new(atomic.Int64))
	ours, theirs := l.open(t.Context(), 1, 1, time.Now()), l.open(t.Context(), 2, 1, time.Now())
	before := l.held()
	younger := l.open(t.Context(), 3, 1, time.Now())
	until := time.Now().Add(time.Hour)
	lost, unknown := l.renewed(before, []int64{1, 99}, until)
	if len(lost) != 1 || lost[0] != theirs || context.Cause(theirs.ctx) != bus.ErrLeaseLost {
		t.Errorf("lost: got %v with cause %v, want claim 2", lost, context.Cause(theirs.ctx))
	}
	if len(unknown) != 1 || unknown[0] != 99 {
		t.Errorf("unknown: got %v, want 99", unknown)
	}
	if *ours.until.Load() != until || ours.ctx.Err() != nil || younger.ctx.Err() != nil {
		t.Error("claims that are held, or were opened meanwhile, must stay")
	}
	l.add(theirs, done(theirs, 20))
	if l.fenced.Load() != 1 || l.unsent != 0 {
		t.Errorf("result of a lost claim: got %d fenced, %d unsent, want it fenced", l.fenced.Load(), l.unsent)
	}
}

func TestLeaseThatCannotBeRenewedExpiresOnce(t *testing.T) {
	t.Parallel()
	l := newLedger(2000, new(atomic.Int64))
	now := time.Now()
	short, long := l.open(t.Context(), 1, 1, now.Add(time.Second)), l.open(t.Context(), 2, 1, now.Add(time.Minute))
	if got := l.expire(now.Add(5 * time.Second)); len(got) != 1 || got[0] != short {
		t.Errorf("expired: got %v, want claim 1", got)
	}
	if got := l.expire(now.Add(5 * time.Second)); len(got) != 0 {
		t.Errorf("again: got %v, want nothing", got)
	}
	if context.Cause(short.ctx) != bus.ErrLeaseLost || long.ctx.Err() != nil {
		t.Error("only the handlers of claim 1 must be cancelled")
	}
	l.add(short, store.Result{Claim: 1, Message: 1, Outcome: store.Release})
	if b, _ := l.collect(now, true); len(b.results) != 1 {
		t.Errorf("results of an expired claim: got %+v, want them settled all the same", b)
	}
}

func TestStragglersAreNotHeldUpByFinishedClaims(t *testing.T) {
	t.Parallel()
	l := newLedger(2000, new(atomic.Int64))
	start := time.Now()
	straggler := l.open(t.Context(), 1, 2, start)
	l.add(straggler, done(straggler, 1))
	first := l.first
	for i := range 12 { // a claim finishes every 5 ms
		entry := l.open(t.Context(), int64(i+2), 1, start)
		l.add(entry, done(entry, int64(i+10)))
		b, _ := l.collect(first.Add(time.Duration(i)*5*time.Millisecond), false)
		l.confirm(b, nil, store.Settled{}, start)
		if len(b.settling) > 0 {
			return
		}
	}
	t.Error("the straggler's result was not settled in 60 ms")
}

func TestLosingEveryLeaseEndsTheWaitForSettling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(2000, new(atomic.Int64))
		entry := l.open(t.Context(), 1, l.maxUnsent+2, time.Now())
		for i := range l.maxUnsent + 1 {
			l.add(entry, done(entry, int64(i)))
		}
		waited := make(chan struct{})
		go func() { l.await(); close(waited) }()
		synctest.Wait()
		l.renewed(l.held(), nil, time.Now())
		<-waited
	})
}

func TestResultsOfLockedMessagesAreSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(2000, new(atomic.Int64))
		entry, gone := l.open(t.Context(), 1, 2, time.Now().Add(time.Minute)), l.open(t.Context(), 2, 1, time.Now())
		l.add(entry, done(entry, 10))
		l.add(entry, done(entry, 11))
		l.add(gone, done(gone, 20))
		b, _ := l.collect(time.Now(), true)
		if b = b.byResult(); len(b.results) != 3 || len(b.settling) != 2 || len(b.finished) != 0 || !b.freeOnly {
			t.Fatalf("whole claims with a locked message: got %+v, want 3 results to settle", b)
		}
		l.confirm(b, nil, store.Settled{Live: []int64{1}, Applied: 1, Busy: []store.Result{done(entry, 11)}}, time.Now().Add(time.Hour))
		if l.fenced.Load() != 1 || len(l.leases) != 1 || entry.ctx.Err() != nil || entry.until.Load().Before(time.Now().Add(time.Hour)) {
			t.Errorf("claim with a locked message: got %d fenced, %d leases, want 1 and 1, and the claim renewed", l.fenced.Load(), len(l.leases))
		}
		if b, wait := l.collect(time.Now(), true); !b.empty() || wait != busyDelay {
			t.Errorf("right after: got %+v and wait %s, want nothing for %s, however urgent", b, wait, busyDelay)
		}
		other := l.open(t.Context(), 3, 1, time.Now())
		l.add(other, done(other, 30))
		b, _ = l.collect(time.Now(), true)
		if len(b.results) != 1 || b.results[0].Claim != 3 || !b.freeOnly {
			t.Errorf("meanwhile: got %+v, want the other claim settled without a wait for locks", b)
		}
		l.confirm(b, nil, store.Settled{Live: []int64{3}, Applied: 1}, time.Now())
		<-time.After(busyDelay)
		b, _ = l.collect(time.Now(), false)
		if len(b.results) != 1 || b.results[0].Message != 11 || len(b.finished) != 0 {
			t.Fatalf("after the delay: got %+v, want the result sent again", b)
		}
		l.confirm(b, nil, store.Settled{Live: []int64{1}, Applied: 1}, time.Now())
		if _, wait := l.collect(time.Now(), true); wait >= 0 || len(l.leases) != 0 || l.fenced.Load() != 1 || l.unsent != 0 || l.busy != 0 {
			t.Errorf("in the end: got %d leases, %d fenced, %d unsent, %d busy, want 0, 1, 0, 0", len(l.leases), l.fenced.Load(), l.unsent, l.busy)
		}
	})
}

// TestNothingBeginsUnderALeaseThatIsOver: right before the function, after the fence and the wait for others, it is asked
// whether this process has stood still.
func TestNothingBeginsUnderALeaseThatIsOver(t *testing.T) {
	t.Parallel()
	d := newTestDispatcher(t, ProcessorConfig{}, "c")
	e, l := &executor{pollState: &d.pollState}, newLedger(10, new(atomic.Int64))
	over := &task{consumer: d.catalog.consumers[0], row: new(store.Message), worker: newWorker(e)}
	live := &task{consumer: d.catalog.consumers[0], row: new(store.Message), worker: over.worker}
	over.lease = l.open(t.Context(), 1, 1, time.Now().Add(-time.Second))
	live.lease = l.open(t.Context(), 2, 1, time.Now().Add(time.Hour))
	if err := over.worker.begin(t.Context(), over, call{}); err != errFenced || over.called {
		t.Errorf("got %v, called %t, want that the message is given back", err, over.called)
	}
	if err := live.worker.begin(t.Context(), live, call{members: []*member{{task: live}, {task: over}}}); err != errFenced || live.called {
		t.Errorf("a batch with it: got %v, called %t, want that it is given back", err, live.called)
	}
	over.called = true
	if err := (call{task: over, lease: over.lease}).Run(); err != errLapsed {
		t.Errorf("a call that has waited for a processor: got %v, want that nothing is called", err)
	}
}

// TestALeaseEndsByTheWallClock, too: while a virtual machine is suspended, the monotonic clock stops.
func TestALeaseEndsByTheWallClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := newLedger(10, new(atomic.Int64))
	entry := l.open(t.Context(), 1, 1, now.Add(time.Minute))
	for name, test := range map[string]struct {
		now  time.Time
		live bool
	}{
		"half a minute by both":                       {now.Add(30 * time.Second), true},
		"two minutes by both":                         {now.Add(2 * time.Minute), false},
		"two minutes by the wall clock alone":         {wallMoved(now, 2*time.Minute), false},
		"two minutes, and the wall clock is set back": {wallMoved(now.Add(2*time.Minute), -time.Hour), false},
	} {
		if live := entry.live(test.now); live != test.live {
			t.Errorf("%s: got live %t, want %t", name, live, test.live)
		}
	}
}

// wallMoved returns an instant with another wall clock and the same monotonic one. Its first word has the seconds above 30 bits
// of nanoseconds.
func wallMoved(at time.Time, by time.Duration) time.Time {
	*(*int64)(unsafe.Pointer(&at)) += int64(by/time.Second) << 30
	return at
}
