package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// dispatcher connects the fetchers, which bring messages, with the workers, which run them. It
// decides which messages may be claimed and which run next.
type dispatcher struct {
	config    ProcessorConfig
	consumers []*consumer
	wants     []store.Want           // each name of a consumer with each payload type
	owner     []*consumer            // of each want
	byName    map[string]*consumer   // also by former names
	byPayload map[string][]*consumer // also by former payload types
	limiters  []*limiter

	slotsWanted chan struct{} // of size 1: a message waits for a slot

	mu            sync.Mutex
	work          sync.Cond     // workers wait here
	room          sync.Cond     // fetchers wait here
	busy          chan struct{} // of size 1: signals the first message after none
	waiting       int           // fetchers that wait
	queued        int           // claimed, not started
	running       int
	runTx         int // running transactional consumers
	reserved      int // by claims in flight
	turn          int // next consumer to start a message, round-robin
	claimTurn     int // next consumer to claim for
	suspectTurn   int // next consumer whose crashed messages are claimed, if one by one
	held          int // bytes of messages that are queued or run
	asked         int // bytes that claims in flight may bring
	cursors       []wantCursor
	quarantine    quarantine
	oneByOneUntil time.Time     // until then each consumer has its own claims, since a joint one failed
	paceTo        time.Time     // no claim begins before, unless there is much to claim
	ahead         time.Duration // the database's clock minus ours
	abandoned     []string      // consumers of handlers that ignored their timeout; with too many nothing is claimed
	impatient     bool          // batches need not fill
	closed        bool
}

func newDispatcher(config ProcessorConfig, consumers []*consumer) *dispatcher {
	d := &dispatcher{config: config, consumers: consumers, busy: make(chan struct{}, 1), byName: make(map[string]*consumer), byPayload: make(map[string][]*consumer),
		limiters: limitersOf(consumers), slotsWanted: make(chan struct{}, 1)}
	for _, c := range consumers {
		for _, want := range flow.Wants(c.Consumer) {
			c.wants = append(c.wants, len(d.wants))
			d.wants, d.owner = append(d.wants, want), append(d.owner, c)
		}
		for _, name := range c.Names() {
			d.byName[name] = c
		}
		if c.Keyed() {
			c.lanes = lanesOf(c)
		}
		for _, payloadType := range c.PayloadTypes() {
			d.byPayload[payloadType] = append(d.byPayload[payloadType], c)
		}
	}
	d.cursors = make([]wantCursor, len(d.wants))
	d.work.L, d.room.L = &d.mu, &d.mu
	return d
}

// activate marks the consumers of the given payload types as having messages just committed in this
// process. No types means all consumers.
func (d *dispatcher) activate(payloadTypes ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var consumers []*consumer
	for _, payloadType := range payloadTypes {
		consumers = append(consumers, d.byPayload[payloadType]...)
	}
	if len(payloadTypes) == 0 {
		consumers = d.consumers
	}
	for _, c := range consumers {
		for _, l := range c.lanes {
			l.activate()
		}
		if !c.Keyed() { // looks find messages without keys, which are rare
			c.activate()
			c.announced = true
		}
	}
	d.room.Broadcast()
}

// expect notes that messages of these payload types may be committed soon.
func (d *dispatcher) expect(now time.Time, payloadTypes []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, payloadType := range payloadTypes {
		for _, c := range d.byPayload[payloadType] {
			c.expected = now.Add(time.Second)
		}
	}
}

func (c *consumer) activate() { c.active, c.wakeups = true, c.wakeups+1 }

// activeLocked reports whether any consumer may have messages.
func (d *dispatcher) activeLocked() bool {
	return slices.ContainsFunc(d.consumers, (*consumer).pending)
}

// pending reports whether the consumer may have messages to claim.
func (c *consumer) pending() bool {
	return c.active || slices.ContainsFunc(c.lanes, func(l *lanes) bool { return l.active })
}

// push hands claimed messages to the workers, those of one lane together. It returns false if the
// processor stops and will not run them.
func (d *dispatcher) push(tasks []task) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	if d.running+d.queued == 0 {
		select {
		case d.busy <- struct{}{}:
		default:
		}
	}
	var head *task
	for i := range tasks {
		t := &tasks[i]
		d.enqueuedLocked(t, 1, t.bytes())
		if head != nil && t.row.Lane != 0 && t.row.Lane == head.row.Lane && t.consumer.KeyConcurrency() == 0 { // one worker runs them in order
			head.others = append(head.others, t)
			continue
		}
		head = t
		if t.row.Crashes > 0 { // others wait for it
			d.quarantine.queued++
			t.consumer.queue = slices.Insert(t.consumer.queue, 0, t)
			continue
		}
		t.consumer.queue = append(t.consumer.queue, t)
	}
	if len(tasks) == 1 {
		d.work.Signal()
	} else {
		d.work.Broadcast()
	}
	return true
}

// next waits for a task that may start and counts it as running. It returns nil when the processor
// stops. done is the task that the worker has just finished, if any.
func (d *dispatcher) next(done *task) *task {
	d.mu.Lock()
	defer d.mu.Unlock()
	if done != nil {
		d.finishedLocked(done)
	}
	for !d.closed {
		if t := d.takeLocked(); t != nil {
			return t
		}
		d.work.Wait()
	}
	return nil
}

// takeNow is next without blocking: it returns nil if no task may start.
func (d *dispatcher) takeNow() *task {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.takeLocked()
}

func (d *dispatcher) takeLocked() *task {
	for range d.consumers {
		c := d.consumers[d.turn%len(d.consumers)]
		d.turn++
		if len(c.queue) == 0 || !d.startsNowLocked(c, c.queue[0]) || d.fillsLocked(c) {
			continue
		}
		t := d.dequeueLocked(c)
		d.running++
		c.running++
		if c.limiter != nil {
			c.limiter.running++
		}
		if c.transactional {
			d.runTx++
		}
		return t
	}
	return nil
}

// dequeueLocked removes a consumer's next task and those that run with it: a whole batch, or for
// shared transactions an equal part for each that could begin now.
func (d *dispatcher) dequeueLocked(c *consumer) *task {
	n, now := 1, time.Now()
	if c.group > 1 && c.queue[0].groupable() {
		share := min(c.waiting, c.group)
		if c.settings.BatchSize == 0 { // transactions side by side do more than a few large ones
			free := d.startableLocked(c, now).n
			share = min((c.waiting+free-1)/free, c.group)
		}
		for sum := c.queue[0].size(); n < len(c.queue) && sum < share && sum+c.queue[n].size() <= c.group && c.queue[n].groupable(); n++ {
			sum += c.queue[n].size()
		}
	}
	t := c.queue[0]
	if t.probe = c.circuit.TakeProbe(now); t.probe {
		n = 1
	}
	for _, other := range c.queue[1:n] {
		t.others, other.others = append(append(t.others, other), other.others...), nil
	}
	if t.row.Crashes > 0 {
		d.quarantine.started(t, now)
	}
	clear(c.queue[:n])
	c.queue = c.queue[n:]
	d.enqueuedLocked(t, -t.size(), 0)
	return t
}

// fillsLocked reports whether a batch waits for more messages. Workers look again when the wait is
// over.
func (d *dispatcher) fillsLocked(c *consumer) bool {
	if d.impatient || c.settings.BatchWait == 0 || c.waiting >= c.group || !c.queue[0].groupable() {
		return false
	}
	now := time.Now()
	if c.exhausted(now) {
		return false
	}
	until := c.queue[0].queuedAt.Add(c.settings.BatchWait)
	if !now.Before(until) {
		return false
	}
	if !c.fillsUntil.Equal(until) {
		c.fillsUntil = until
		time.AfterFunc(until.Sub(now), func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.work.Broadcast() // a message that cannot join the batch needs a worker, too
		})
	}
	return true
}

// startsNowLocked reports whether a free worker may start a message of its consumer. The last
// worker, and the consumer's last place, are kept for crashed messages when it is their turn.
func (d *dispatcher) startsNowLocked(c *consumer, t *task) bool {
	now := time.Now()
	s := d.mayStartLocked(c, now)
	if t.row.Crashes > 0 || s.n == 0 {
		return s.n > 0
	}
	kept := d.quarantine.needsWorker && d.running >= d.config.Concurrency-1
	return !kept && s.n > d.keptLocked(c, now) && d.startsLocked(c) > 0
}

func (d *dispatcher) finishedLocked(t *task) {
	c, now := t.consumer, time.Now()
	c.finished.add(now, 1+len(t.others))
	d.running--
	c.running--
	if c.limiter != nil {
		if c.limiter.running--; c.limiter.owed > 0 {
			d.askForSlots()
		}
	}
	if c.transactional {
		d.runTx--
	}
	d.held -= t.weight()
	d.quarantine.finished(t, d.config.Concurrency)
	if c.settings.Concurrency > 0 || c.limiter != nil || c.transactional || d.queued > 0 && len(d.consumers) > 1 {
		d.work.Signal() // a task that had to wait for its consumer may start
	}
	switch { // a paced fetcher looks again by itself
	case d.waiting == 0, now.Before(d.paceTo), !d.quarantine.pending() && !d.activeLocked():
	default:
		d.room.Signal()
	}
}

// stale takes back the messages that have waited for a worker since before the given instant, or
// that wait behind an open circuit. Other processes can then have them.
func (d *dispatcher) stale(before time.Time) []*task {
	return d.withdraw(func(t *task) bool {
		return t.queuedAt.Add(t.consumer.settings.BatchWait).Before(before) || behindCircuit(t)
	})
}

// withdraw takes back and returns every waiting message that matches.
func (d *dispatcher) withdraw(match func(*task) bool) []*task {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []*task
	for _, c := range d.consumers {
		var kept []*task
		for _, t := range c.queue {
			left, out := t.without(match)
			if left != nil {
				kept = append(kept, left)
			}
			for _, t := range out {
				d.enqueuedLocked(t, -1, -t.bytes())
				d.quarantine.givenBack(t.row.Crashes)
			}
			all = append(all, out...)
		}
		c.queue = kept
	}
	d.room.Broadcast()
	return all
}

// enqueuedLocked counts messages that wait for a worker and the bytes of held messages.
func (d *dispatcher) enqueuedLocked(t *task, n, bytes int) {
	t.consumer.waiting += n
	d.queued += n
	d.held += bytes
}

// load returns how many messages run and how many wait for a worker.
func (d *dispatcher) load() (running, queued int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.running, d.queued
}

// abandon notes that a handler was abandoned.
func (d *dispatcher) abandon(consumer string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.abandoned = append(d.abandoned, consumer)
}

// ended notes that an abandoned handler has returned.
func (d *dispatcher) ended(consumer string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.Index(d.abandoned, consumer)
	d.abandoned = slices.Delete(d.abandoned, i, i+1)
	d.room.Broadcast()
}

// leftBehind returns the consumers of abandoned handlers that still run.
func (d *dispatcher) leftBehind() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(slices.Values(d.abandoned))
}

// close ends all waits and returns the tasks that had not started.
func (d *dispatcher) close() []*task {
	d.mu.Lock()
	d.closed = true
	d.work.Broadcast()
	d.room.Broadcast()
	d.mu.Unlock()
	return d.withdraw(func(*task) bool { return true })
}
