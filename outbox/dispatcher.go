package outbox

import (
	"slices"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// dispatcher stands between the claim loops, which bring messages, and the
// workers, which run them. It decides what may be claimed and who runs next.
type dispatcher struct {
	config    ProcessorConfig
	consumers []*consumer
	wants     []store.Want
	owner     []*consumer            // of each want
	byName    map[string]*consumer   // also by former names
	byPayload map[string][]*consumer // also by former payload types

	mu       sync.Mutex
	work     sync.Cond // workers wait here
	room     sync.Cond // claim loops wait here
	waiting  int       // claim loops that wait
	queued   int       // claimed, not started
	running  int
	runTx    int // running transactional consumers
	reserved int // asked for by claims under way
	active   int // consumers that may have messages
	turn     int // who is served first, round-robin
	hints    hints
	suspects suspicion
	paused   bool // too many handlers were abandoned
	closed   bool
}

func newDispatcher(config ProcessorConfig, consumers []*consumer, wants []store.Want, owner []*consumer) *dispatcher {
	d := &dispatcher{config: config, consumers: consumers, wants: wants, owner: owner,
		hints: newHints(len(wants))}
	d.byName, d.byPayload = make(map[string]*consumer), make(map[string][]*consumer)
	for _, c := range consumers {
		for _, name := range c.Names() {
			d.byName[name] = c
		}
		for _, payloadType := range c.PayloadTypes() {
			d.byPayload[payloadType] = append(d.byPayload[payloadType], c)
		}
	}
	d.work.L, d.room.L = &d.mu, &d.mu
	return d
}

// activate marks the consumers of the given payload types as having messages;
// none means all of them.
func (d *dispatcher) activate(payloadTypes ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, payloadType := range payloadTypes {
		for _, c := range d.byPayload[payloadType] {
			d.activateLocked(c)
		}
	}
	if len(payloadTypes) == 0 {
		for _, c := range d.consumers {
			d.activateLocked(c)
		}
	}
	d.room.Broadcast()
}

func (d *dispatcher) activateLocked(c *consumer) {
	c.wakes++
	if !c.active {
		c.active = true
		d.active++
	}
}

func (d *dispatcher) deactivateLocked(c *consumer) {
	if c.active {
		c.active = false
		d.active--
	}
}

// found acts on a probe, and tells whether it brought work to consumers that had
// none.
func (d *dispatcher) found(p store.Probe, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.active
	for _, i := range p.Due {
		d.activateLocked(d.owner[i])
	}
	d.suspects.found(p, now)
	d.room.Broadcast()
	return d.active > before
}

// push hands claimed messages to the workers. False means that the processor
// stops and nobody will run them.
func (d *dispatcher) push(tasks []task) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	for i := range tasks {
		t := &tasks[i]
		t.consumer.queue = append(t.consumer.queue, t)
	}
	d.queued += len(tasks)
	if len(tasks) == 1 {
		d.work.Signal()
	} else {
		d.work.Broadcast()
	}
	return true
}

// next waits for a task that may start, and counts it as running. Nil means
// that the processor stops. done is the task the worker has just finished, if any.
func (d *dispatcher) next(done *task) *task {
	d.mu.Lock()
	defer d.mu.Unlock()
	if done != nil {
		d.finishedLocked(done)
	}
	for {
		if d.closed {
			return nil
		}
		if t := d.takeLocked(); t != nil {
			return t
		}
		d.work.Wait()
	}
}

func (d *dispatcher) takeLocked() *task {
	for range d.consumers {
		c := d.consumers[d.turn%len(d.consumers)]
		d.turn++
		if len(c.queue) == 0 || !d.mayStartLocked(c) {
			continue
		}
		t := d.dequeueLocked(c)
		d.running++
		c.running++
		if c.transactional {
			d.runTx++
		}
		return t
	}
	return nil
}

// dequeueLocked takes a consumer's next task, and those that are to share its
// transactions: an equal part for each transaction that could begin now.
func (d *dispatcher) dequeueLocked(c *consumer) *task {
	n := 1
	if c.group > 1 && c.queue[0].groupable() {
		free := min(d.limit(c)-c.running, d.config.TxConcurrency-d.runTx)
		share := min((len(c.queue)+free-1)/free, c.group)
		for n < share && c.queue[n].groupable() {
			n++
		}
	}
	t := c.queue[0]
	if n > 1 {
		t.mates = slices.Clone(c.queue[1:n])
	}
	clear(c.queue[:n])
	c.queue = c.queue[n:]
	d.queued -= n
	return t
}

func (d *dispatcher) mayStartLocked(c *consumer) bool {
	return c.running < d.limit(c) && (!c.transactional || d.runTx < d.config.TxConcurrency)
}

// limit is how many messages of a consumer may run at once.
func (d *dispatcher) limit(c *consumer) int {
	limit := d.config.Concurrency
	if c.transactional {
		limit = min(limit, d.config.TxConcurrency)
	}
	if c.settings.Concurrency > 0 {
		limit = min(limit, c.settings.Concurrency)
	}
	return limit
}

func (d *dispatcher) finishedLocked(t *task) {
	c := t.consumer
	c.finished.add(time.Now(), 1+len(t.mates))
	d.running--
	c.running--
	if c.transactional {
		d.runTx--
	}
	d.suspects.finished(t.row.Crashes)
	if t.consumer.settings.Concurrency > 0 || c.transactional {
		d.work.Signal() // a task that had to wait for its consumer may start
	}
	if d.waiting > 0 && (d.active > 0 || d.suspects.pending()) {
		d.room.Signal()
	}
}

// order is what a claim loop is to ask for.
type order struct {
	request   store.ClaimRequest
	wants     []int       // index of each want of the request
	consumers []*consumer // that were asked for
	asked     []int       // how many each
	wakes     []int       // of each, when it was asked for
}

// nextClaim waits until there is something to claim and room for it. False
// means that the processor stops.
func (d *dispatcher) nextClaim() (order, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for !d.closed {
		if o, ok := d.orderLocked(time.Now()); ok {
			return o, true
		}
		d.waiting++
		d.room.Wait()
		d.waiting--
	}
	return order{}, false
}

// claimed accounts for what a claim brought. A consumer that got fewer messages
// than it was asked for, counted from the very start, has no more for now.
func (d *dispatcher) claimed(o order, c store.Claim, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.room.Signal()
	if o.request.Select != store.Clean {
		d.suspects.claimed(o.request, len(c.Messages))
		return
	}
	found := make(map[*consumer]int, len(o.consumers))
	for i, want := range o.wants {
		if err != nil || len(c.Found) == 0 {
			break
		}
		found[d.owner[want]] += c.Found[i]
		if c.Found[i] > 0 {
			d.hints.advance(want, c.First[i], c.Last[i])
		}
	}
	for i, consumer := range o.consumers {
		consumer.reserved -= o.asked[i]
		d.reserved -= o.asked[i]
		if err != nil || c.Cut || found[consumer] >= o.asked[i] {
			continue
		}
		fromStart := d.rewindLocked(consumer, o)
		if fromStart && consumer.wakes == o.wakes[i] {
			d.deactivateLocked(consumer)
		}
	}
}

// rewindLocked resets the consumer's hints and tells whether the order had none.
func (d *dispatcher) rewindLocked(c *consumer, o order) bool {
	fromStart := true
	for i, want := range o.wants {
		if d.owner[want] == c {
			fromStart = fromStart && o.request.Wants[i].After == store.Position{}
			d.hints.last[want] = store.Position{}
		}
	}
	return fromStart
}

// rescan has the next claims start at the beginning, if it is time for that.
func (d *dispatcher) rescan(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hints.rescan(now)
}

// stale takes back the messages that have waited for a worker since before the
// given instant, so that other processes can have them.
func (d *dispatcher) stale(before time.Time) []*task {
	return d.withdraw(func(t *task) bool { return t.queuedAt.Before(before) })
}

// withdraw takes back every waiting message that matches.
func (d *dispatcher) withdraw(match func(*task) bool) []*task {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []*task
	for _, c := range d.consumers {
		var kept []*task
		for _, t := range c.queue {
			if match(t) {
				out = append(out, t)
				d.suspects.finished(t.row.Crashes)
			} else {
				kept = append(kept, t)
			}
		}
		c.queue = kept
	}
	d.queued -= len(out)
	d.room.Broadcast()
	return out
}

// load returns how many messages run and how many wait for a worker.
func (d *dispatcher) load() (running, queued int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.running, d.queued
}

// pause stops claiming, or lets it go on.
func (d *dispatcher) pause(paused bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.paused = paused
	d.room.Broadcast()
}

// close stops everybody who waits and returns what had not started.
func (d *dispatcher) close() []*task {
	d.mu.Lock()
	d.closed = true
	d.work.Broadcast()
	d.room.Broadcast()
	d.mu.Unlock()
	return d.withdraw(func(*task) bool { return true })
}
