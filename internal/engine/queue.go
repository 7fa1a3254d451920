package engine

import (
	"slices"
	"sync"
	"time"
)

// queue is the workers' side of the dispatcher: it holds claimed messages until they start.
type queue struct {
	mu         *sync.Mutex // the dispatcher's
	work, room *sync.Cond
	config     *ProcessorConfig
	consumers  []*consumer
	quarantine *quarantine
	capacity   *capacity
	planner    *planner // has a fetcher look when capacity is freed

	busy      chan struct{} // of size 1: signals the first message after none
	startFrom int           // next consumer to start a message, round-robin
	impatient bool          // batches need not fill
	closed    bool
}

// push hands claimed messages to the workers, those of one lane together. It returns false if the
// processor stops and will not run them.
func (q *queue) push(tasks []task) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	if q.capacity.running+q.capacity.queued == 0 {
		select {
		case q.busy <- struct{}{}:
		default:
		}
	}
	var head *task
	for i := range tasks {
		t := &tasks[i]
		q.capacity.enqueued(t, 1, t.bytes())
		t.fills = t.consumer.settings.BatchWait
		if t.fills > 0 {
			t.fills = min(t.fills, t.untilDeadline()/2)
		}
		if head != nil && t.row.Lane != 0 && t.row.Lane == head.row.Lane && t.consumer.keyConcurrency() == 0 { // one worker runs them in order
			head.others = append(head.others, t)
			continue
		}
		head = t
		if t.row.Crashes > 0 { // others wait for it
			q.quarantine.queued++
			t.consumer.queue = slices.Insert(t.consumer.queue, 0, t)
			continue
		}
		t.consumer.queue = append(t.consumer.queue, t)
	}
	if len(tasks) == 1 {
		q.work.Signal()
	} else {
		q.work.Broadcast()
	}
	return true
}

// next waits for a task that may start and counts it as running. It returns nil when the processor
// stops. done is the task that the worker has just finished, if any.
func (q *queue) next(done *task) *task {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if done != nil {
		q.finishedLocked(done, now)
	}
	for !q.closed {
		if t := q.takeLocked(now); t != nil {
			return t
		}
		q.work.Wait()
		now = time.Now()
	}
	return nil
}

// takeNow is next without blocking: it returns nil if no task may start.
func (q *queue) takeNow() *task {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.takeLocked(time.Now())
}

func (q *queue) takeLocked(now time.Time) *task {
	for range q.consumers {
		c := q.consumers[q.startFrom%len(q.consumers)]
		q.startFrom++
		if len(c.queue) == 0 || !q.startsNowLocked(c, c.queue[0], now) || q.fillsLocked(c, now) {
			continue
		}
		t := q.dequeueLocked(c, now)
		q.capacity.running++
		c.running++
		if c.limiter != nil {
			c.limiter.running++
		}
		if c.transactional {
			q.capacity.runningTx++
		}
		return t
	}
	return nil
}

// dequeueLocked removes a consumer's next task and those that run with it: a whole batch, or for
// shared transactions an equal part for each that could begin now.
func (q *queue) dequeueLocked(c *consumer, now time.Time) *task {
	n := 1
	if c.group > 1 && c.queue[0].groupable() {
		share := min(c.waiting, c.group)
		if c.settings.BatchSize == 0 { // transactions side by side do more than a few large ones
			free := max(q.capacity.startable(c, now).n, 1) // the circuit may have opened just now
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
		q.quarantine.started(t, now)
	}
	clear(c.queue[:n])
	c.queue = c.queue[n:]
	q.capacity.enqueued(t, -t.size(), 0)
	return t
}

// fillsLocked reports whether a batch waits for more messages. Workers look again when the wait is
// over.
func (q *queue) fillsLocked(c *consumer, now time.Time) bool {
	if q.impatient || c.settings.BatchWait == 0 || c.waiting >= c.group || !c.queue[0].groupable() {
		return false
	}
	if c.exhausted(now) {
		return false
	}
	until := c.queue[0].queuedAt.Add(c.queue[0].fills)
	for _, t := range c.queue[1:] {
		if at := t.queuedAt.Add(t.fills); at.Before(until) { // for its deadline
			until = at
		}
	}
	if !now.Before(until) {
		return false
	}
	if !c.fillsUntil.Equal(until) {
		c.fillsUntil = until
		time.AfterFunc(until.Sub(now), func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.work.Broadcast() // a message that cannot join the batch needs a worker, too
		})
	}
	return true
}

// startsNowLocked reports whether a free worker may start a message of its consumer. The last
// worker, and the consumer's last place, are kept for crashed messages that may start when it is
// their turn.
func (q *queue) startsNowLocked(c *consumer, t *task, now time.Time) bool {
	s := q.capacity.mayStart(c, now)
	if t.row.Crashes > 0 || s.n == 0 {
		return s.n > 0
	}
	return s.n > q.capacity.keptForCrashed(c, now) && q.capacity.starts(c) > 0
}

func (q *queue) finishedLocked(t *task, now time.Time) {
	c := t.consumer
	c.finished.add(now, 1+len(t.others))
	q.capacity.running--
	c.running--
	if c.limiter != nil {
		c.limiter.running--
		if c.limiter.owed > 0 {
			q.capacity.askForSlots()
		}
	}
	if c.transactional {
		q.capacity.runningTx--
	}
	q.capacity.held -= t.weight()
	q.quarantine.finished(t, q.config.Concurrency)
	if c.settings.Concurrency > 0 || c.limiter != nil || c.transactional || q.capacity.queued > 0 && len(q.consumers) > 1 {
		q.work.Signal() // a task that had to wait for its consumer may start
	}
	q.planner.roomFreedLocked(now)
}

// finished counts a task as no longer running.
func (q *queue) finished(t *task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.finishedLocked(t, time.Now())
}

// measured notes how long the messages of a sequence took.
func (q *queue) measured(c *consumer, n int, took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.measured(n, took)
}

// stale takes back the messages that have waited for a worker since before the given instant, or
// that wait behind an open circuit. Other processes can then have them.
func (q *queue) stale(before time.Time) []*task {
	return q.withdraw(func(t *task) bool {
		return t.queuedAt.Add(t.consumer.settings.BatchWait).Before(before) || behindCircuit(t)
	})
}

// withdraw takes back and returns every waiting message that matches.
func (q *queue) withdraw(match func(*task) bool) []*task {
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []*task
	for _, c := range q.consumers {
		var kept []*task
		for _, t := range c.queue {
			left, out := t.without(match)
			if left != nil {
				kept = append(kept, left)
			}
			for _, t := range out {
				q.capacity.enqueued(t, -1, -t.bytes())
				q.quarantine.givenBack(t.row.Crashes)
			}
			all = append(all, out...)
		}
		c.queue = kept
	}
	q.room.Broadcast()
	return all
}

// load returns how many messages run and how many wait for a worker.
func (q *queue) load() (running, queued int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.capacity.running, q.capacity.queued
}

// abandon notes that a handler was abandoned.
func (q *queue) abandon(consumer string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.capacity.abandoned = append(q.capacity.abandoned, consumer)
}

// ended notes that an abandoned handler has returned.
func (q *queue) ended(consumer string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.capacity.abandoned, consumer)
	q.capacity.abandoned = slices.Delete(q.capacity.abandoned, i, i+1)
	q.room.Broadcast()
}

// abandonedConsumers returns the consumers of abandoned handlers that still run.
func (q *queue) abandonedConsumers() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Sorted(slices.Values(q.capacity.abandoned))
}

// behindCircuit reports whether an open circuit keeps a message from starting, even as a probe.
func behindCircuit(t *task) bool {
	probe, open := t.consumer.circuit.NextProbe()
	return open && (time.Now().Before(probe) || len(t.consumer.queue) > 1)
}
