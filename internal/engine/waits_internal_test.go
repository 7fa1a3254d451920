package engine

// An internal test: what waits for what only the dispatcher knows, and on a clock of its own.

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

// The commit of a transaction that the producer has not begun is not announced.
func TestUnannouncedCommitsAreLookedForSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry, err := bus.NewRegistry()
		if err != nil {
			t.Fatal(err)
		}
		r := (&Processor{registry: registry, config: ProcessorConfig{}.withDefaults(true, 0)}).newRun(t.Context())
		defer r.listener.listen()()
		now := time.Now()
		r.listener.soon.Rearm(now, now.Add(time.Minute))
		access.Wakeups(registry).Send(wakeup.Wake{PayloadTypes: []string{"order.placed"}, Expected: true})
		for _, ms := range []time.Duration{2, 10, 50, 250, 60_000} {
			<-time.After(r.listener.soon.Next(time.Now()))
			if got, want := time.Since(now), ms*time.Millisecond; got != want {
				t.Fatalf("look: got one after %s, want one after %s", got, want)
			}
			r.listener.soon.Rearm(time.Now(), now.Add(time.Minute))
		}
	})
}

func TestAConsumerIsClaimedForOnceItsWaitIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{}, "c")
		d.activate("test")
		plan := d.mustPlan(t)
		d.planner.failed(plan, false, false, time.Now())
		start := time.Now()
		time.AfterFunc(time.Minute, func() { d.look(store.Poll{Due: []int{0}, First: []store.Position{{}}}) }) // the next poll
		d.planner.nextClaim()
		if took := time.Since(start); took > 2*minPostponed {
			t.Errorf("the next claim: got it after %s, want it after %s", took, minPostponed)
		}
	})
}

func TestAFailedAcquittalIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{}, "c")
		d.look(store.Poll{Killers: []int{0}})
		d.suspect(t, d.mustPlan(t), 1, 2)
		<-time.After(soloPatience)
		d.look(store.Poll{Suspects: []int{0}, Killers: []int{0}})
		plan := d.mustPlan(t)
		if !plan.acquits {
			t.Fatal("no acquittal")
		}
		d.planner.failed(plan, false, false, time.Now()) // store.Acquit failed
		d.look(store.Poll{Suspects: []int{0}, Killers: []int{0}})
		if plan = d.mustPlan(t); !plan.acquits {
			t.Error("suspects beside a solo run whose acquittal failed: got none, want another")
		}
	})
}

func TestWhatWasGivenBackHasNotSurvived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{Concurrency: 64}, "c")
		d.look(store.Poll{Suspects: []int{0}})
		plan := d.mustPlan(t)
		tasks := make([]task, 8)
		for i := range tasks {
			tasks[i] = task{consumer: d.catalog.consumers[0], row: &store.Message{Crashes: 1}, queuedAt: time.Now()}
		}
		d.queue.push(tasks)
		d.planner.claimed(plan, store.Claim{Messages: make([]store.Message, 8)}, time.Now())
		d.queue.stale(time.Now().Add(time.Hour))
		d.look(store.Poll{Suspects: []int{0}})
		d.quarantine.waiting = true
		d.mustPlan(t).is(t, store.Suspects, 8, false)
	})
}

// TestSuspectsThatCannotStartAreNotClaimed, and do not stop the others; they are claimed once their consumer has room,
// before its clean messages.
func TestSuspectsThatCannotStartAreNotClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{Concurrency: 64, BatchSize: 4}, "one", "other")
		one := d.catalog.consumers[0]
		one.settings.Concurrency = 1
		d.queue.push([]task{taskOf(one), taskOf(one)})
		running := d.queue.next(nil) // a long run
		d.look(store.Poll{Suspects: []int{0}})
		d.mustNotPlan(t, "the consumer has no room")
		d.look(store.Poll{Suspects: []int{0}, Due: []int{1}, First: []store.Position{{At: time.Now(), ID: 1}}, Now: time.Now()})
		d.planner.claimed(d.mustPlan(t), store.Claim{Found: make([]int, 1), Last: make([]store.Position, 1)}, time.Now())
		d.end(running)
		if next := d.queue.takeNow(); next != nil {
			t.Fatal("a clean message began, want the room kept for what has crashed")
		}
		plan := d.mustPlan(t)
		plan.is(t, store.Suspects, 8, false)
		d.planner.claimed(plan, store.Claim{}, time.Now())
		if next := d.queue.takeNow(); next == nil {
			t.Error("nothing has crashed after all: got no clean message, want one")
		}
	})
}

func TestNothingIsSoloBeforeItCanRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{Concurrency: 4}, "c")
		c := d.catalog.consumers[0]
		d.queue.push([]task{taskOf(c), taskOf(c), taskOf(c), taskOf(c)})
		for range 4 {
			d.queue.next(nil)
		}
		d.look(store.Poll{Killers: []int{0}})
		d.mustNotPlan(t, "no worker is free: a solo claim would be blamed without a run")
	})
}

func TestASoloRunWaitsNoLongerThanItsPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{}, "c")
		d.look(store.Poll{Killers: []int{0}})
		solo := d.suspect(t, d.mustPlan(t), 1, 2)
		<-time.After(soloPatience)
		d.look(store.Poll{Suspects: []int{0}, Killers: []int{0}})
		plan := d.mustPlan(t)
		d.suspect(t, plan, 8, 1) // they run for an hour
		d.end(solo...)
		d.look(store.Poll{Suspects: []int{0}, Killers: []int{0}}) // more of both
		<-time.After(3 * soloPatience)
		d.look(store.Poll{Suspects: []int{0}, Killers: []int{0}})
		plan = d.mustPlan(t) // they wait no longer for those that go on
		plan.is(t, store.Suspects, 16, false)
		d.suspect(t, plan, 0, 1)
		d.mustPlan(t).is(t, store.Killers, 1, false)
	})
}

func TestASweepThatOutlastsAnOutageDoesNotPostponeTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sweeper
		s.aside(func() bool { <-time.After(sweepTimeout); return false })
		<-time.After(10 * time.Second)
		ended := time.Now() // the outage
		if due, polling := s.due(time.Now(), ended); !due || !polling {
			t.Errorf("right after the outage: got %t and %t, want a sweep by a poll", due, polling)
		}
		s.wg.Wait()
		if at := time.Until(s.at()); at > sweepAgain {
			t.Errorf("next sweep: got in %s, want in %s: one that failed says nothing", at, sweepAgain)
		}
	})
}

func TestRunsThatNeverBeganDoNotCountAgainstTheFirstConflict(t *testing.T) {
	var u uncountedRuns
	m := &task{row: &store.Message{ID: 1}}
	for range maxUncounted {
		_ = u.outcome(m, &fault{unstarted, errors.New("begin")})
	}
	err := u.outcome(m, &fault{conflict, errors.New("conflict")})
	if got := bus.OutcomeOf(err).Outcome; got != bus.Snoozed {
		t.Errorf("the first conflict after ten runs that never began: got %s, want snoozed", got)
	}
}

func TestACursorNeverStandsAheadOfTheDatabasesClock(t *testing.T) {
	db := time.Now()
	var c wantCursor
	c.skip(db.Add(time.Hour - margin)) // as lookAll and failed do, of a process an hour fast
	// A sweep finds a message, and it is claimed.
	c.looked(store.Position{}, c.start, store.Position{At: db, ID: 7}, true, db)
	c.claimed(c.start, 0, 1, store.Position{At: db, ID: 7}, false)
	if c.start.At.After(db) {
		t.Errorf("the next claim begins behind %s from now: what is produced until then is found by sweeps only", c.start.At.Sub(db))
	}
}

func TestCleanMessagesAreClaimedBetweenSuspects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{}, "c")
		d.look(store.Poll{Suspects: []int{0}})
		d.findDue(0)
		d.look(store.Poll{Suspects: []int{0}})
		for range 30 { // one claim loop, as on SQLite, and quick suspects
			plan := d.mustPlan(t)
			if plan.request.Select == store.Clean {
				return
			}
			d.end(d.suspect(t, plan, plan.request.Limit, 1)...)
		}
		t.Error("thirty orders: got none but of suspects, want clean messages among them")
	})
}

func TestASoloRunGetsAWorkerHoweverBusyTheOthersAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{Concurrency: 2}, "c")
		c := d.catalog.consumers[0]
		d.queue.push([]task{taskOf(c), taskOf(c), taskOf(c), taskOf(c)})
		first := d.queue.next(nil)
		d.queue.next(nil)
		d.look(store.Poll{Killers: []int{0}})
		d.mustNotPlan(t, "nothing solo is claimed before it can begin")
		taken := make(chan *task, 1)
		go func() { taken <- d.queue.next(first) }()
		synctest.Wait()
		select {
		case got := <-taken:
			t.Fatalf("the free worker took a message with %d crashes, want it kept", got.row.Crashes)
		default:
		}
		plan := d.mustPlan(t)
		plan.is(t, store.Killers, 1, true)
		d.queue.push([]task{{consumer: c, row: &store.Message{Crashes: 2}}})
		d.planner.claimed(plan, store.Claim{Messages: make([]store.Message, 1)}, time.Now())
		if got := <-taken; got.row.Crashes != 2 {
			t.Errorf("the worker took a message with %d crashes, want the suspect", got.row.Crashes)
		}
	})
}

// A look that took seconds is no reason to come later than without.
func TestALongLookDoesNotSilenceThePoller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for took, want := range map[time.Duration]time.Duration{
			0: pollFloor, 20 * time.Millisecond: 200 * time.Millisecond, 5 * time.Second: time.Second,
		} {
			if got := pauseAfter(time.Now().Add(-took), time.Second); got != want {
				t.Errorf("after a look of %s: got a rest of %s, want %s", took, got, want)
			}
		}
	})
}

// TestTheEstimatedClockIsNeverBehind the database's, so that no run starts after its deadline: it is ahead by as long as the
// statement took to read it.
func TestTheEstimatedClockIsNeverBehind(t *testing.T) {
	t.Parallel()
	d := newTestDispatcher(t, ProcessorConfig{}, "c")
	sent := time.Now()
	const ahead = time.Hour // the database's clock
	for _, step := range []struct {
		took, read, want time.Duration // by the statement, until it read the clock, and by which the estimate is ahead then
	}{
		{5 * time.Second, 4 * time.Second, 4 * time.Second}, // the first counts however slow
		{900 * time.Millisecond, 900 * time.Millisecond, 900 * time.Millisecond},
		{900 * time.Millisecond, 0, 0},
		{2 * time.Second, time.Second, 0}, // too slow to replace that
	} {
		d.pollState.setClockLocked(sent.Add(ahead+step.read), sent, sent.Add(step.took))
		if got := d.pollState.clock(sent).Sub(sent.Add(ahead)); got != step.want {
			t.Errorf("after %+v: got the estimate ahead by %s, want %s", step, got, step.want)
		}
	}
}
