package engine

// An internal test: how many suspects run at once, and what runs beside them, is a
// matter of orders that from outside only show when processes die.

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// suspects brings what a plan asks for, n messages that crashed so often, and
// returns them as they run.
func (d *dispatcher) suspect(t *testing.T, plan claimPlan, n, crashes int) (running []*task) {
	t.Helper()
	tasks := make([]task, n)
	for i := range tasks {
		tasks[i] = task{consumer: d.catalog.consumers[0], row: &store.Message{Crashes: crashes}, queuedAt: time.Now()}
	}
	d.queue.push(tasks)
	d.planner.claimed(plan, store.Claim{Messages: make([]store.Message, n)}, time.Now())
	for range n {
		running = append(running, d.queue.next(nil))
	}
	return running
}

func (d *dispatcher) end(tasks ...*task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range tasks {
		d.queue.finishedLocked(t, time.Now())
	}
}

func (d *dispatcher) look(p store.Poll) {
	wants, stood := d.pollState.looks(nil)
	d.pollState.found(p, wants, stood, time.Now())
}

// watch looks now and then for a while, and finds that no process is lost.
func (d *dispatcher) watch(while time.Duration) {
	lease := d.quarantine.lease
	for end := time.Now().Add(while); time.Now().Before(end); <-time.After(min(lease/2, time.Until(end))) {
		d.look(store.Poll{Killers: []int{0}, Lease: lease})
	}
}

func (plan claimPlan) is(t *testing.T, selection store.Selection, limit int, solo bool) {
	t.Helper()
	if r := plan.request; r.Select != selection || r.Limit != limit || r.Solo != solo {
		t.Fatalf("order: got selection %d, limit %d, solo %t, want %d, %d, %t", r.Select, r.Limit, r.Solo, selection, limit, solo)
	}
}

func TestSuspectsComeBackFasterAsTheySurvive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{Concurrency: 40}, "c")
		d.look(store.Poll{Suspects: []int{0}})
		for _, want := range []int{8, 16, 20, 20} {
			plan := d.mustPlan(t)
			plan.is(t, store.Suspects, want, false)
			running := d.suspect(t, plan, want, 1)
			d.mustNotPlan(t, "as many run as may")
			d.end(running...)
		}
		d.look(store.Poll{})
		d.look(store.Poll{Suspects: []int{0}})
		d.mustPlan(t).is(t, store.Suspects, 8, false)
	})
}

func TestASoloRunHasNoOtherSuspectBesideIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{}, "c")
		d.look(store.Poll{Suspects: []int{0}})
		running := d.suspect(t, d.mustPlan(t), 3, 1)
		d.look(store.Poll{Suspects: []int{0}, Killers: []int{0}})
		d.mustNotPlan(t, "the solo run waits for the suspects in flight, and others for it")
		d.findDue(0)
		d.mustPlan(t).is(t, store.Clean, 61, false) // clean ones go on
		d.catalog.consumers[0].active = false
		d.look(store.Poll{Suspects: []int{0}, Killers: []int{0}})
		d.end(running...)
		plan := d.mustPlan(t)
		plan.is(t, store.Killers, 1, true)
		solo := d.suspect(t, plan, 1, 2)
		d.mustNotPlan(t, "a suspect runs solo")
		<-time.After(soloPatience)
		plan = d.mustPlan(t)
		plan.is(t, store.Suspects, 8, false)
		if !plan.acquits {
			t.Error("suspects beside a solo run: got it still counted as solo, want it acquitted")
		}
		d.suspect(t, plan, 1, 1)
		d.end(solo...)
	})
}

// TestASoloRunIsNotBlamedForTheNext: the outcome of the one before may not be written yet, when the next ends the process.
func TestASoloRunIsNotBlamedForTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{}, "c")
		d.look(store.Poll{Killers: []int{0}})
		plan := d.mustPlan(t)
		plan.is(t, store.Killers, 1, true)
		if plan.acquits {
			t.Error("the first: got an acquittal, want none")
		}
		d.end(d.suspect(t, plan, 1, 2)...)
		d.look(store.Poll{Suspects: []int{0}, Killers: []int{0}})
		plan = d.mustPlan(t)
		plan.is(t, store.Suspects, 8, false)
		if !plan.acquits {
			t.Error("suspects after it: got it still counted as solo, want it acquitted")
		}
		d.end(d.suspect(t, plan, 1, 1)...)
		d.look(store.Poll{Killers: []int{0}})
		for i := range 2 {
			plan = d.mustPlan(t)
			plan.is(t, store.Killers, 1, true)
			if plan.acquits != (i > 0) {
				t.Errorf("solo run %d: got an acquittal %t, want it where one was before", i, plan.acquits)
			}
			d.end(d.suspect(t, plan, 1, 2)...)
			d.look(store.Poll{Killers: []int{0}})
		}
	})
}

func TestSoloRunsGiveWayOnceTheySurvive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{Concurrency: 40}, "c")
		const lease = 6 * time.Second
		d.quarantine.begin(lease, time.Now())
		d.watch(lease)
		for range 2 {
			for range 40 {
				d.look(store.Poll{Killers: []int{0}, Lease: lease})
				plan := d.mustPlan(t)
				plan.is(t, store.Killers, 1, true)
				d.end(d.suspect(t, plan, 1, 2)...)
			}
			for _, want := range []int{20, 20} {
				d.look(store.Poll{Killers: []int{0}, Lease: lease})
				plan := d.mustPlan(t)
				plan.is(t, store.Killers, want, false)
				running := d.suspect(t, plan, want, 2)
				d.look(store.Poll{Killers: []int{0}, Lease: lease})
				d.mustNotPlan(t, "as many run as may")
				d.end(running...)
			}
			d.look(store.Poll{Killers: []int{0}, Lease: lease*3/5 - 1}) // a process is lost
			d.mustNotPlan(t, "what killed may be among them")
			d.watch(2 * lease)
		}
		d.look(store.Poll{Lease: lease})
		d.look(store.Poll{Killers: []int{0}, Lease: lease})
		d.mustPlan(t).is(t, store.Killers, 1, true) // they are others now
	})
}

func TestASoloRunDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{}, "c")
		d.look(store.Poll{Suspects: []int{0}})
		d.suspect(t, d.mustPlan(t), 1, 1) // runs for long
		d.look(store.Poll{Killers: []int{0}})
		<-time.After(soloPatience)
		d.mustPlan(t).is(t, store.Killers, 1, false) // it is not alone
	})
}

func TestSuspectsAndSoloRunsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{}, "c")
		d.look(store.Poll{Suspects: []int{0}, Killers: []int{0}})
		for range 3 {
			plan := d.mustPlan(t)
			plan.is(t, store.Killers, 1, true)
			d.end(d.suspect(t, plan, 1, 2)...)
			plan = d.mustPlan(t)
			plan.is(t, store.Suspects, 8, false)
			d.end(d.suspect(t, plan, 8, 1)...)
			d.quarantine.together, d.quarantine.solo = width{}, width{}
		}
	})
}

func TestAYoungProcessConvictsNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{}, "c")
		const lease = 5 * time.Second
		d.quarantine.begin(lease, time.Now())
		d.look(store.Poll{Killers: []int{0}})
		d.mustNotPlan(t, "the process is young")
		d.watch(lease)
		d.look(store.Poll{Killers: []int{0}, Lease: lease / 3})
		d.mustNotPlan(t, "a process does not renew")
		d.watch(lease*9/5 - lease + lease/3 - 1)
		d.look(store.Poll{Killers: []int{0}, Lease: lease})
		d.mustNotPlan(t, "it renewed its lease less than nine fifths of one ago")
		<-time.After(1)
		d.look(store.Poll{Killers: []int{0}, Lease: lease})
		plan := d.mustPlan(t)
		plan.is(t, store.Killers, 1, true)
		d.end(d.suspect(t, plan, 1, 2)...)
		d.quarantine.wanted = time.Time{}
		<-time.After(maxSoloDelay)
		d.look(store.Poll{Killers: []int{0}, Expired: true})
		d.mustPlan(t).is(t, store.Killers, 1, true) // it has lived for long
	})
}

// TestASoloRunThatIsCalledOffKeepsNoWorker has a solo run wait for a worker, and then
// loses a process.
func TestASoloRunThatIsCalledOffKeepsNoWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{Concurrency: 1}, "c")
		const lease = 4 * time.Second
		d.quarantine.begin(lease, time.Now())
		d.watch(lease)
		d.queue.push([]task{taskOf(d.catalog.consumers[0]), taskOf(d.catalog.consumers[0])})
		clean := d.queue.next(nil)
		d.look(store.Poll{Killers: []int{0}, Lease: lease})
		d.mustNotPlan(t, "the only worker is busy")
		d.end(clean)
		next := make(chan *task, 1)
		go func() { next <- d.queue.next(nil) }()
		synctest.Wait()
		if len(next) > 0 {
			t.Error("a clean message: got it run, want the worker kept for the solo run")
		}
		d.look(store.Poll{Killers: []int{0}, Lease: lease / 3})
		d.mustNotPlan(t, "a process is lost")
		synctest.Wait()
		if len(next) == 0 {
			t.Error("the next clean message: got it kept from the worker, want it run")
			d.close()
		}
	})
}

// TestALateSweepIsIgnored has a sweep report what it has seen long ago.
func TestALateSweepIsIgnored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{}, "c")
		const lease = 4 * time.Second
		d.quarantine.begin(lease, time.Now())
		began := time.Now()
		d.watch(lease)
		d.look(store.Poll{Killers: []int{0}, Lease: lease})
		wants, stood := d.pollState.looks(nil)
		d.pollState.found(store.Poll{Killers: []int{0}, Lease: lease}, wants, stood, began)
		d.mustPlan(t).is(t, store.Killers, 1, true)
	})
}

// TestAProcessThatRarelyLooksConvictsNoOther has a process that is too busy to look: another process may have
// been lost, and its report deleted, between two looks.
func TestAProcessThatRarelyLooksConvictsNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{}, "c")
		const lease = 4 * time.Second
		d.quarantine.begin(lease, time.Now())
		d.watch(lease)
		d.look(store.Poll{Killers: []int{0}, Lease: lease})
		plan := d.mustPlan(t)
		plan.is(t, store.Killers, 1, true)
		solo := d.suspect(t, plan, 1, 2)
		<-time.After(lease/2 + 1)
		d.end(solo...)
		d.mustNotPlan(t, "the last look is too old")
		d.look(store.Poll{Killers: []int{0}, Lease: lease})
		d.mustNotPlan(t, "there was none for so long")
		d.watch(lease)
		d.look(store.Poll{Killers: []int{0}, Lease: lease})
		d.mustPlan(t).is(t, store.Killers, 1, true)
	})
}

func TestSoloMessageThatFinishesBeforeItsClaimIsAccountedFor(t *testing.T) {
	t.Parallel()
	d := newTestDispatcher(t, ProcessorConfig{}, "c")
	d.look(store.Poll{Killers: []int{0}})
	plan := d.mustPlan(t)
	plan.is(t, store.Killers, 1, true)
	d.queue.push([]task{{consumer: d.catalog.consumers[0], row: &store.Message{Crashes: 2}}})
	d.end(d.queue.next(nil))
	d.planner.claimed(plan, store.Claim{Messages: make([]store.Message, 1)}, time.Now())
	d.mustPlan(t).is(t, store.Killers, 1, true) // the next, which must not wait for ever
}

func TestNoConsumerHoldsTheLastWorkers(t *testing.T) {
	t.Parallel()
	names := []string{"slow", "slower", "slowest", "quick"}
	for _, concurrency := range []int{1, 2, 8, 64, 1000} {
		d := newTestDispatcher(t, ProcessorConfig{Concurrency: concurrency}, names...)
		var running []int
		for i, c := range d.catalog.consumers {
			tasks := make([]task, concurrency)
			for j := range tasks {
				tasks[j] = taskOf(c)
			}
			d.queue.push(tasks)
			for {
				d.mu.Lock()
				can := d.capacity.starts(c)
				task := d.queue.takeLocked(time.Now())
				d.mu.Unlock()
				if (can > 0) != (task != nil) {
					t.Fatalf("concurrency %d, %s: got room for %d, and a start %t", concurrency, names[i], can, task != nil)
				}
				if task == nil {
					break
				}
			}
			running = append(running, c.running)
			c.queue = nil
		}
		if concurrency >= 64 && running[3] == 0 {
			t.Errorf("concurrency %d: running got %v, want some of the last", concurrency, running)
		}
		if share := max(concurrency/8, 1); concurrency > 1 && running[0] != concurrency-share {
			t.Errorf("concurrency %d: running got %v, want all but %d of the first", concurrency, running, share)
		}
	}
	alone := newTestDispatcher(t, ProcessorConfig{}, "only")
	if got := alone.capacity.starts(alone.catalog.consumers[0]); got != 64 {
		t.Errorf("a single consumer: got room for %d, want all 64 workers", got)
	}
}

func TestWhatIsHeldIsBoundedByBytes(t *testing.T) {
	t.Parallel()
	d := newTestDispatcher(t, ProcessorConfig{}, "c")
	big := make([]byte, maxHeldBytes/4)
	var running []*task
	for held := 0; held < 4; held++ {
		d.activate("test")
		plan := d.mustPlan(t)
		if want := min(maxClaimBytes, maxHeldBytes-held*len(big)); plan.request.MaxBytes != want {
			t.Errorf("with %d held: got %d bytes asked for, want %d", held, plan.request.MaxBytes, want)
		}
		d.queue.push([]task{{consumer: d.catalog.consumers[0], row: &store.Message{Payload: big}}})
		claim := store.Claim{Messages: make([]store.Message, 1), Found: []int{1}, Last: make([]store.Position, 1), Cut: true}
		d.planner.claimed(plan, claim, time.Now())
		running = append(running, d.queue.next(nil))
	}
	d.mustNotPlan(t, "all bytes are held")
	d.end(running[0])
	d.mustPlan(t)
	if d.end(running[1:]...); d.capacity.held != 0 {
		t.Errorf("held at the end: got %d bytes, want none", d.capacity.held)
	}
}

func TestAFailingConsumerIsClaimedForByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{}, "good", "bad")
		d.activate()
		plan := d.mustPlan(t)
		if !d.planner.failed(plan, false, false, time.Now()) {
			t.Error("a claim for two failed: got a wait, want a claim for each")
		}
		ordered := make(map[string]int)
		for range 4 {
			plan := d.mustPlan(t)
			if len(plan.parts) != 1 {
				t.Fatalf("order after a failure: got %d consumers, want one", len(plan.parts))
			}
			name := plan.parts[0].Name()
			if ordered[name]++; name == "bad" {
				d.planner.failed(plan, false, false, time.Now())
				continue
			}
			d.planner.claimed(plan, store.Claim{Found: []int{plan.parts[0].asked}, Last: make([]store.Position, 1), Cut: true}, time.Now())
		}
		if ordered["bad"] != 1 || ordered["good"] != 3 {
			t.Errorf("orders: got %v, want one of the bad, which waits then, and 3 of the good", ordered)
		}
		<-time.After(minPostponed)
		both := map[string]bool{}
		for range 2 {
			both[d.mustPlan(t).parts[0].Name()] = true
		}
		if !both["bad"] {
			t.Error("after its wait: got no order for the bad, want one")
		}
	})
}

func TestClaimsThatBringLittleArePaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{}, "c")
		start := time.Now()
		var plan claimPlan
		for range 10 {
			d.activate("test")
			plan, _ = d.planner.nextClaim()
			d.planner.claimed(plan, store.Claim{Found: []int{0}, Last: make([]store.Position, 1)}, time.Now())
		}
		if took := time.Since(start); took != 9*pace {
			t.Errorf("ten claims of nothing: got %s, want %s", took, 9*pace)
		}
		for took, want := range map[time.Duration]time.Duration{
			0: pace, 1500 * time.Microsecond: 3 * time.Millisecond, 3 * time.Millisecond: mostPace, time.Second: time.Second,
		} {
			<-time.After(time.Second)
			d.activate("test")
			plan, _ = d.planner.nextClaim()
			start = time.Now()
			<-time.After(took)
			d.planner.claimed(plan, store.Claim{Found: []int{0}, Last: make([]store.Position, 1)}, time.Now())
			d.activate("test")
			plan, _ = d.planner.nextClaim()
			if got := time.Since(start); got != want {
				t.Errorf("a claim of %s: got the next after %s, want %s", took, got, want)
			}
			d.planner.claimed(plan, store.Claim{Found: []int{0}, Last: make([]store.Position, 1)}, time.Now())
		}
	})
}

// With a small BatchSize a claim brings few messages, and there are more.
func TestFullClaimsNeedNoRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{BatchSize: 10}, "c")
		d.activate("test")
		plan, _ := d.planner.nextClaim()
		start := time.Now()
		<-time.After(pace)
		d.planner.claimed(plan, store.Claim{Messages: make([]store.Message, 10), Found: []int{10}, Last: make([]store.Position, 1)}, time.Now())
		d.planner.nextClaim()
		if took := time.Since(start); plan.request.Limit != 10 || took != pace {
			t.Errorf("after a claim of %d messages that took %s: got the next %s after its beginning, want it at once",
				plan.request.Limit, pace, took)
		}
	})
}

func TestClaimsUnderWayAreNotStrays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var u inFlightClaims
		if u.startedBefore(time.Now()) {
			t.Error("no claim: got one under way, want none")
		}
		end := u.begin()
		<-time.After(time.Second)
		seen := time.Now()
		u.begin() // later claims are not what was seen
		if !u.startedBefore(seen) {
			t.Error("a claim that began before: got none under way, want one")
		}
		<-time.After(time.Second)
		end()
		if u.startedBefore(seen) {
			t.Error("a claim that is over: got it under way, want none")
		}
	})
}

func TestExpectedMessagesAreLookedForByConsumer(t *testing.T) {
	t.Parallel()
	a, b, c := &consumer{}, &consumer{}, &consumer{}
	d := assemble(ProcessorConfig{}, catalog{
		wants:     []store.Want{{Consumer: "a", Payload: "one"}, {Consumer: "b", Payload: "two"}, {Consumer: "c", Payload: "one"}},
		owner:     []*consumer{a, b, c},
		byName:    map[string]*consumer{"a": a, "b": b, "c": c},
		byPayload: map[string][]*consumer{"one": {a, c}, "two": {b}},
	})
	now := time.Now()
	d.expect(now, []string{"one"})
	wants := d.pollState.expected(now, false)
	if len(wants) != 2 || wants[0].Consumer != "a" || wants[1].Consumer != "c" {
		t.Errorf("wants: got %+v, want those of payload type one", wants)
	}
	d.pollState.appeared(wants, store.Poll{Due: []int{1}})
	if a.active || b.active || !c.active {
		t.Errorf("active: got a %t, b %t, c %t, want c alone", a.active, b.active, c.active)
	}
	if got := d.pollState.expected(now.Add(2*time.Second), false); len(got) != 0 {
		t.Errorf("two seconds later: got %v expected, want nothing", got)
	}
}
