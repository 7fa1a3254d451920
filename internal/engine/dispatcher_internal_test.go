package engine

// An internal test: how room is measured and dealt is arithmetic that no user
// sees, and that a whole processor would only show as speed.

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func TestDistributionIsFairAndComplete(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		rooms  []int
		budget int
		want   []int
	}{
		{"no consumer has capacity", nil, 10, []int{}},
		{"one takes all", []int{100}, 10, []int{10}},
		{"room is the limit", []int{3}, 10, []int{3}},
		{"equal shares", []int{100, 100}, 10, []int{5, 5}},
		{"what one leaves the other gets", []int{2, 100}, 10, []int{2, 8}},
		{"fewer than there are takers", []int{5, 5, 5}, 2, []int{1, 1, 0}},
		{"odd rest goes to the first in turn", []int{100, 100, 100}, 10, []int{4, 3, 3}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			parts := make([]part, len(test.rooms))
			for i, room := range test.rooms {
				parts[i].room = room
			}
			distribute(parts, test.budget)
			got := store.Each(parts, func(p part) int { return p.asked })
			if !slices.Equal(got, test.want) {
				t.Errorf("distribute(%v, %d): got %v, want %v", test.rooms, test.budget, got, test.want)
			}
		})
	}
}

func TestRateCountsTheLastSecond(t *testing.T) {
	t.Parallel()
	var r throughput
	start := time.UnixMilli(1_000_000)
	for i := range 10 {
		r.add(start.Add(time.Duration(i)*100*time.Millisecond), 1)
	}
	for after, want := range map[time.Duration]int{900 * time.Millisecond: 10, 1500 * time.Millisecond: 3, 2 * time.Second: 0, time.Hour: 0} {
		counted := r
		if got := counted.lastSecond(start.Add(after)); got != want {
			t.Errorf("after %s: got %d, want %d", after, got, want)
		}
	}
}

// newTestDispatcher makes a dispatcher for consumers of one payload type.
func newTestDispatcher(t *testing.T, config ProcessorConfig, names ...string) *dispatcher {
	t.Helper()
	config = config.withDefaults(true, 0)
	var consumers []*consumer
	for _, name := range names {
		registered := bus.Consume(name, func(context.Context, testPayload) error { return nil })
		settings, err := config.settings(registered)
		if err != nil {
			t.Fatal(err)
		}
		consumers = append(consumers, &consumer{Consumer: registered, settings: settings, group: 1})
	}
	return newDispatcher(config, consumers)
}

type testPayload struct{}

func (testPayload) PayloadType() string { return "test" }

// taskOf returns a claimed message of a consumer.
func taskOf(c *consumer) task {
	return task{consumer: c, row: new(store.Message), queuedAt: time.Now()}
}

// bring pushes n tasks for the only consumer, as a claim would.
func (d *dispatcher) bring(plan claimPlan, n int) []task {
	tasks := make([]task, n)
	for i := range tasks {
		tasks[i] = taskOf(d.catalog.consumers[0])
	}
	d.queue.push(tasks)
	d.planner.claimed(plan, store.Claim{Found: []int{n}, Last: make([]store.Position, 1)}, time.Now())
	return tasks
}

// findDue is a poll that finds something for a want.
func (d *dispatcher) findDue(want int) {
	d.look(store.Poll{Due: []int{want}, First: []store.Position{{At: time.Now(), ID: 1}}, Now: time.Now()})
}

func (d *dispatcher) mustPlan(t *testing.T) claimPlan {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	plan, ok := d.planner.planLocked(time.Now())
	if !ok {
		t.Fatal("no plan, want one")
	}
	return plan
}

func (d *dispatcher) mustNotPlan(t *testing.T, why string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if plan, ok := d.planner.planLocked(time.Now()); ok {
		t.Fatalf("%s: got plan %+v, want none", why, plan)
	}
}

func TestRoomIsFreeWorkersPlusWhatWasFinished(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{Concurrency: 4, Fetchers: 1}, "c")
		d.mustNotPlan(t, "nothing is known to wait")
		d.findDue(0)
		first := d.mustPlan(t)
		if got := first.parts[0].asked; got != 4 {
			t.Errorf("first order: got %d, want the 4 free workers", got)
		}
		d.mustNotPlan(t, "all room is reserved")
		d.bring(first, 4)
		var running []*task
		for range 4 {
			running = append(running, d.queue.next(nil))
		}
		d.mustNotPlan(t, "all workers are busy and nothing was finished")
		for _, done := range running {
			d.mu.Lock()
			d.queue.finishedLocked(done, time.Now())
			d.mu.Unlock()
		}
		if got := d.mustPlan(t).parts[0].asked; got != 8 {
			t.Errorf("second order: got %d, want 4 free workers and the 4 finished in the last second", got)
		}
	})
}

func TestBatchesFollowTheRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for finished, want := range map[int]int{0: 64, 300: 364, 5_000: 500, 32_000: 1_000, 100_000: 2_000} {
			d := newTestDispatcher(t, ProcessorConfig{}, "c")
			d.findDue(0)
			d.catalog.consumers[0].finished.add(time.Now(), finished)
			if got := d.mustPlan(t).parts[0].asked; got != want {
				t.Errorf("%d finished in the last second: got %d asked for, want %d", finished, got, want)
			}
		}
	})
}

func TestAConsumerWithEnoughToDoIsNotClaimedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{TxConcurrency: 8, Fetchers: 1}, "c")
		c := d.catalog.consumers[0]
		c.transactional = true
		d.findDue(0)
		c.finished.add(time.Now(), 100)
		d.bring(d.mustPlan(t), 108)
		var running []*task
		for range 8 {
			running = append(running, d.queue.next(nil))
		}
		for i := range 30 { // one is done, and another begins
			d.mustNotPlan(t, fmt.Sprintf("%d of a hundred are done", i))
			d.mu.Lock()
			d.queue.finishedLocked(running[0], time.Now())
			d.mu.Unlock()
			running = append(running[1:], d.queue.next(nil))
			d.findDue(0)
		}
		d.end(running...)
		if got := d.mustPlan(t).parts[0].asked; got < 50 {
			t.Errorf("a third of it is done: got %d asked for, want 50 or more", got)
		}
	})
}

func TestShortClaimRestsTheConsumerUntilItIsWoken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{}, "c")
		d.activate()
		plan := d.mustPlan(t)
		d.bring(plan, 3)
		d.mustNotPlan(t, "the claim came back short from the start")

		d.activate("test")
		plan = d.mustPlan(t)
		d.activate("test") // a wake-up while the claim is under way
		d.planner.claimed(plan, store.Claim{Found: []int{0}, Last: make([]store.Position, 1)}, time.Now())
		d.mustPlan(t)
	})
}

// Promise: due-starts
func TestClaimsBeginAtTheirCursor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{Concurrency: 2}, "c")
		d.activate("test")
		plan := d.mustPlan(t)
		at := store.Position{At: time.Now(), ID: 7}
		d.planner.claimed(plan, store.Claim{Found: []int{2}, Last: []store.Position{at}}, time.Now())
		plan = d.mustPlan(t)
		if got := plan.request.Wants[0].After; got != at {
			t.Errorf("after a full claim: got cursor %+v, want %+v", got, at)
		}
		d.planner.claimed(plan, store.Claim{Found: []int{0}, Last: make([]store.Position, 1)}, time.Now())
		plan = d.mustPlan(t) // still active: the short claim looked from further on
		edge := store.Position{At: at.At.Add(-margin)}
		if got := plan.request.Wants[0].After; got != edge {
			t.Errorf("after a short claim: got cursor %+v, want %+v", got, edge)
		}
		d.planner.claimed(plan, store.Claim{Found: []int{0}, Last: make([]store.Position, 1)}, time.Now())
		d.mustNotPlan(t, "short from the edge")
		d.activate("test")
		plan = d.mustPlan(t)
		d.planner.claimed(plan, store.Claim{Found: []int{0}, Last: make([]store.Position, 1)}, time.Now())
		d.mustNotPlan(t, "one claim for a wake-up that brings nothing")
	})
}

// Promise: due-starts
func TestPollsMoveCursors(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var start, none store.Position
	place := func(ago time.Duration, id int64) store.Position { return store.Position{At: now.Add(-ago), ID: id} }
	edge := place(margin, 0)
	tests := []struct {
		name  string
		stood store.Position
		act   func(c *wantCursor)
		want  store.Position
	}{
		{"nothing due: all but the margin lies behind", start, func(c *wantCursor) { c.looked(start, start, none, false, now) }, edge},
		{"something due: it comes next", start, func(c *wantCursor) {
			c.looked(start, start, place(time.Hour, 7), true, now)
		}, place(time.Hour, 6)},
		{"a sweep moves back to what it finds", edge, func(c *wantCursor) {
			c.looked(start, edge, place(time.Hour, 7), true, now)
		}, place(time.Hour, 6)},
		{"a sweep does not find what was claimed during it", place(time.Minute, 9), func(c *wantCursor) {
			c.looked(start, place(time.Hour, 0), place(time.Minute, 3), true, now)
		}, place(time.Minute, 9)},
		{"a claim under way does not undo a sweep", place(time.Minute, 0), func(c *wantCursor) {
			c.looked(start, c.start, place(time.Hour, 7), true, now)
			c.claimed(place(time.Minute, 0), 0, 5, place(time.Second, 1), true)
		}, place(time.Hour, 6)},
		{"a claim that began before does not pass what another locked and dropped", place(time.Hour, 0), func(c *wantCursor) {
			c.claimed(place(time.Hour, 0), 0, 5, place(time.Minute, 5), true)
			c.dropped(place(time.Minute, 6))
			c.claimed(place(time.Hour, 0), 0, 5, place(time.Second, 1), true)
		}, place(time.Minute, 5)},
		{"a claim that has passed it already is taken back", place(time.Hour, 0), func(c *wantCursor) {
			c.claimed(place(time.Hour, 0), 0, 5, place(time.Second, 1), true)
			c.claimed(place(time.Hour, 0), 0, 5, place(time.Minute, 5), true)
			c.dropped(place(time.Minute, 6))
		}, place(time.Minute, 5)},
		{"a claim that began afterwards goes on", place(time.Hour, 0), func(c *wantCursor) {
			c.dropped(place(time.Minute, 6))
			c.claimed(place(time.Hour, 0), 1, 5, place(time.Second, 1), true)
		}, place(time.Second, 1)},
		{"a look under way does not undo a sweep", place(time.Minute, 0), func(c *wantCursor) {
			c.looked(start, c.start, place(time.Hour, 7), true, now)
			c.looked(place(time.Minute, 0), place(time.Minute, 0), none, false, now)
		}, place(time.Hour, 6)},
		{"a look at what is new skips nothing that is old", place(time.Hour, 0), func(c *wantCursor) {
			c.looked(place(time.Minute, 0), c.start, place(time.Second, 7), true, now)
			c.looked(place(time.Minute, 0), c.start, none, false, now)
		}, place(time.Hour, 0)},
		{"what takes too long is skipped", start, func(c *wantCursor) { c.skip(now) }, place(0, 0)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := wantCursor{start: test.stood}
			if test.act(&c); c.start != test.want {
				t.Errorf("cursor: got %+v, want %+v", c.start, test.want)
			}
		})
	}
}

func TestUnstartedMessagesAreTakenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{Concurrency: 1}, "c")
		d.activate("test")
		d.bring(d.mustPlan(t), 3)
		running := d.queue.next(nil)
		if got := d.queue.stale(time.Now().Add(-time.Second)); len(got) != 0 {
			t.Errorf("at once: got %d taken back, want none", len(got))
		}
		<-time.After(2 * time.Second)
		if got := d.queue.stale(time.Now().Add(-time.Second)); len(got) != 2 || slices.Contains(got, running) {
			t.Errorf("after two seconds: got %d taken back, want the 2 that wait", len(got))
		}
		if d.close(); d.queue.next(nil) != nil {
			t.Error("next after close: got a task, want nil")
		}
	})
}

func TestConsumerConcurrencyHoldsBackOnlyThatConsumer(t *testing.T) {
	t.Parallel()
	d := newTestDispatcher(t, ProcessorConfig{}, "limited", "free")
	d.catalog.consumers[0].settings.Concurrency = 1
	var tasks []task
	for i := range 4 {
		tasks = append(tasks, taskOf(d.catalog.consumers[i%2]))
	}
	d.queue.push(tasks)
	var started []string
	for range 3 {
		started = append(started, d.queue.next(nil).consumer.Name())
	}
	slices.Sort(started)
	if want := []string{"free", "free", "limited"}; !slices.Equal(started, want) {
		t.Errorf("started: got %v, want %v", started, want)
	}
}

func TestGroupsShareTheQueue(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		queue  int
		failed int // index of a message that has failed before, or -1
		want   []int
	}{
		{"few messages run side by side", 3, -1, []int{1, 1, 1}},
		{"each transaction gets an equal part", 10, -1, []int{3, 3, 2, 2}},
		{"no group is larger than it may be", 100, -1, []int{5, 5, 5, 5}},
		{"what has failed before runs alone", 20, 2, []int{2, 1, 5, 5}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := newTestDispatcher(t, ProcessorConfig{TxConcurrency: 4}, "c")
			d.catalog.consumers[0].transactional, d.catalog.consumers[0].group = true, 5
			tasks := make([]task, test.queue)
			for i := range tasks {
				tasks[i] = taskOf(d.catalog.consumers[0])
			}
			if test.failed >= 0 {
				tasks[test.failed].row.Attempts = 1
			}
			d.queue.push(tasks)
			var got []int
			for d.capacity.queued > 0 && d.capacity.runningTx < 4 {
				got = append(got, 1+len(d.queue.next(nil).others))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("groups of %d: got %v, want %v", test.queue, got, test.want)
			}
		})
	}
}

// TestLargeMessagesThatRunKeepNoOtherConsumerWaiting: a consumer that holds nothing may have a message all the same.
func TestLargeMessagesThatRunKeepNoOtherConsumerWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newTestDispatcher(t, ProcessorConfig{Concurrency: 4}, "large", "small")
		d.queue.push([]task{{consumer: d.catalog.consumers[0], row: &store.Message{Payload: make([]byte, maxHeldBytes)}}})
		d.queue.next(nil)
		d.findDue(0)
		d.mustNotPlan(t, "what runs of the consumer fills the memory")
		d.findDue(1)
		plan := d.mustPlan(t)
		if len(plan.parts) != 1 || plan.parts[0].consumer != d.catalog.consumers[1] || plan.request.Limit != 1 {
			t.Errorf("got %d messages of %q, want one of the consumer that holds none", plan.request.Limit, plan.parts[0].Name())
		}
		d.mustNotPlan(t, "that is under way")
	})
}
