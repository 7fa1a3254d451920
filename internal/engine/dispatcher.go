package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// dispatcher connects the fetchers, which bring messages, with the workers, which run them. Its
// mutex guards all its parts and the state of the consumers. A part calls those above it in this
// list only.
type dispatcher struct {
	config ProcessorConfig

	mu   sync.Mutex
	work sync.Cond // workers wait here
	room sync.Cond // fetchers wait here

	catalog    catalog
	quarantine quarantine
	capacity   capacity
	pollState  pollState
	planner    planner
	queue      queue
	limiters   limiters
}

func newDispatcher(config ProcessorConfig, consumers []*consumer) *dispatcher {
	d := assemble(config, newCatalog(consumers))
	d.limiters.all = limitersOf(consumers)
	return d
}

// assemble connects the parts of a dispatcher.
func assemble(config ProcessorConfig, c catalog) *dispatcher {
	d := &dispatcher{config: config, catalog: c}
	d.work.L, d.room.L, d.catalog.mu = &d.mu, &d.mu, &d.mu
	d.capacity = capacity{
		config: &d.config, consumers: c.consumers, quarantine: &d.quarantine, slotsWanted: make(chan struct{}, 1),
	}
	d.pollState = pollState{
		mu: &d.mu, work: &d.work, room: &d.room, config: &d.config, catalog: &d.catalog, quarantine: &d.quarantine,
		cursors: make([]wantCursor, len(c.wants)),
	}
	d.planner = planner{
		mu: &d.mu, work: &d.work, room: &d.room, config: &d.config, catalog: &d.catalog, quarantine: &d.quarantine,
		capacity: &d.capacity, pollState: &d.pollState,
	}
	d.queue = queue{
		mu: &d.mu, work: &d.work, room: &d.room, config: &d.config, consumers: c.consumers, quarantine: &d.quarantine,
		capacity: &d.capacity, planner: &d.planner, busy: make(chan struct{}, 1),
	}
	d.limiters = limiters{mu: &d.mu, work: &d.work, room: &d.room, config: &d.config, capacity: &d.capacity}
	return d
}

// activate records that messages of the given payload types were just committed in this process. No
// types means all consumers.
func (d *dispatcher) activate(payloadTypes ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var consumers []*consumer
	for _, payloadType := range payloadTypes {
		consumers = append(consumers, d.catalog.byPayload[payloadType]...)
	}
	if len(payloadTypes) == 0 {
		consumers = d.catalog.consumers
	}
	for _, c := range consumers {
		for _, l := range c.lanes {
			l.activate()
		}
		if !access.Keyed(&c.settings) { // looks find messages without keys, which are rare
			first := !c.active
			if c.activate(); first && len(payloadTypes) > 0 && !d.quarantine.looked.IsZero() { // else there may be a backlog
				c.clear = time.Now()
			}
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
		for _, c := range d.catalog.byPayload[payloadType] {
			c.expected = now.Add(time.Second)
		}
	}
}

// close ends all waits and returns the tasks that had not started.
func (d *dispatcher) close() []*task {
	d.mu.Lock()
	d.queue.closed, d.planner.closed = true, true
	d.work.Broadcast()
	d.room.Broadcast()
	d.mu.Unlock()
	return d.queue.withdraw(func(*task) bool { return true })
}

// circuitChanged has the dispatcher look again for work of the circuit's consumers.
func (d *dispatcher) circuitChanged(g *flow.Circuit) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.catalog.consumers {
		if c.circuit == g {
			c.activate()
		}
	}
	d.work.Broadcast()
	d.room.Broadcast()
}

// watchCircuits subscribes the dispatcher to changes of circuits until stop is called.
func (d *dispatcher) watchCircuits() (stop func()) {
	var stops []func()
	for _, c := range d.catalog.consumers {
		if c.circuit != nil {
			stops = append(stops, c.circuit.Watch(func() { d.circuitChanged(c.circuit) }))
		}
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// withoutOpenCircuits returns the wants of consumers whose circuits allow a message now.
func (d *dispatcher) withoutOpenCircuits(wants []store.Want) []store.Want {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(wants), func(want store.Want) bool {
		return d.heldByCircuitLocked(d.catalog.byName[want.Consumer])
	})
}

// heldByCircuitLocked reports whether an open circuit keeps a consumer from claiming.
func (d *dispatcher) heldByCircuitLocked(c *consumer) bool {
	return !d.capacity.startable(c, time.Now()).until.IsZero()
}

// wake wakes the goroutines that wait for a circuit.
func (d *dispatcher) wake() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room.Broadcast()
	d.work.Broadcast()
}

// couldProbe reports whether a consumer has a message to probe with, if its circuit allowed it. One that
// is crowded out has the next place in turn.
func (d *dispatcher) couldProbe(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.catalog.byName[name]
	now := time.Now()
	has, _ := c.hasWork(now)
	return has && (d.capacity.free(c) > 0 || d.capacity.crowded(c, now))
}

// freed lets messages be claimed that waited for the settled ones of their keys, and messages that
// were given back.
func (d *dispatcher) freed(claims []*lease, results []store.Result) {
	if !slices.ContainsFunc(claims, func(l *lease) bool { return l.lanes != nil }) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	of := make(map[int64]*lanes)
	for _, claim := range claims {
		if l := claim.lanes; l != nil {
			of[claim.id] = l
			if l.PerKey < store.Unbounded { // else nothing has waited for it
				l.free(claim.deep, d.config.BatchSize)
			}
			for _, other := range l.of.lanes { // its successor may be stored under another name
				if other != l && l.PerKey == 0 {
					other.again = true
					other.activate()
				}
			}
		}
	}
	for _, r := range results {
		if l := of[r.Claim]; l != nil && r.Outcome != store.Done {
			if r.Outcome == store.Release {
				l.free([]int64{r.Lane}, d.config.BatchSize)
			}
			l.floor, l.again = min(l.floor, r.Rank-1), true
			if l.whole && l.spent == 0 { // the scan has not left the floor
				l.hint = min(l.hint, l.floor)
			}
		}
	}
	d.room.Signal()
}
