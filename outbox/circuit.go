package outbox

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	firstProbe   = time.Second
	longestProbe = 30 * time.Second
)

// Circuit stops consumers of this process while something that they need is away. Their handlers
// trip it, as any other code may:
//
//	if err := stripe.Charge(ctx, card); errors.Is(err, errUnreachable) {
//		return circuit.Trip(err)
//	}
//
// While the circuit is open, nothing is claimed for the consumers that have it ([WithCircuit]),
// except single messages that probe. The first probe starts after a second, the next two seconds
// later, and then after twice as long each time, up to 30 s. A probe that is done closes the
// circuit. Messages that were claimed are given back. A handler that returns an error costs its
// message no attempt: nothing is written to what waits.
//
// A Circuit is of this process only; other processes go on. The zero value is closed. It is safe
// for concurrent use, and must not be copied.
type Circuit struct {
	mu       sync.Mutex
	since    time.Time // zero while it is closed
	reason   error
	probe    time.Time // when the next one may start
	probing  bool      // one has started, and its outcome is not known yet
	interval time.Duration
	watchers map[*dispatcher]bool
}

type gateKey struct{}

// WithCircuit gives a consumer a circuit, which several may share. NewProcessor refuses nil.
func WithCircuit(g *Circuit) bus.ConsumerOption {
	return func(c *bus.ConsumerConfig) { c.SetValue(gateKey{}, g) }
}

// gateOf returns the circuit of a consumer, or nil.
func gateOf(name string, settings bus.ConsumerConfig) (*Circuit, error) {
	g, gated := settings.Value(gateKey{}).(*Circuit)
	if gated && g == nil {
		return nil, fmt.Errorf("outbox: consumer %q: the circuit is nil", name)
	}
	return g, nil
}

// errClosed stands for the reason of a circuit that is tripped without one.
var errClosed = errors.New("outbox: the gate was closed")

// Trip opens the circuit, and returns an error that wraps the reason. A handler that returns this
// error gives its message back with no attempt counted. While the circuit is open, Trip only
// replaces the reason.
func (g *Circuit) Trip(reason error) error {
	if reason == nil {
		reason = errClosed
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reason = reason; g.since.IsZero() {
		g.since, g.interval, g.probing = time.Now(), firstProbe, false
		g.probe = g.since.Add(g.interval)
	}
	return &bus.OutcomeError{Outcome: bus.Released, Err: reason}
}

// Reset closes the circuit. It has no effect on one that is closed.
func (g *Circuit) Reset() {
	g.changed(func() { g.since, g.reason, g.probing = time.Time{}, nil, false })
}

// changed makes a change, and has the dispatchers look again at what they may start.
func (g *Circuit) changed(change func()) {
	g.mu.Lock()
	change()
	watchers := slices.Collect(maps.Keys(g.watchers))
	g.mu.Unlock()
	for _, d := range watchers {
		d.changed(g)
	}
}

// Tripped returns since when the circuit is open, and why. False means that it is closed.
func (g *Circuit) Tripped() (since time.Time, reason error, closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.since, g.reason, !g.since.IsZero()
}

// shut reports whether the circuit is open, and when a probe may start.
func (g *Circuit) shut() (probe time.Time, closed bool) {
	if g == nil {
		return time.Time{}, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.probing {
		return time.Now().Add(never), !g.since.IsZero()
	}
	return g.probe, !g.since.IsZero()
}

// take takes the right to probe: a token of which there is one. It is spent by the outcome of the
// consumer's function, or given back by whatever ends the message before that is reached.
func (g *Circuit) take(now time.Time) bool {
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.since.IsZero() || g.probing || now.Before(g.probe) {
		return false
	}
	g.probing = true
	return true
}

// giveBack gives the right to probe to the next message.
func (g *Circuit) giveBack() { g.changed(func() { g.probing = false }) }

// spend ends a probe that has failed: the next one may start after twice as long.
func (g *Circuit) spend(now time.Time) {
	g.changed(func() {
		if !g.probing {
			return // the circuit was reset meanwhile
		}
		if g.interval < never {
			g.interval = min(2*g.interval, longestProbe)
		}
		g.probing, g.probe = false, now.Add(g.interval)
	})
}

// watch has the dispatcher hear of changes of the circuit, until stop is called.
func (g *Circuit) watch(d *dispatcher) (stop func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.watchers == nil {
		g.watchers = make(map[*dispatcher]bool)
	}
	g.watchers[d] = true
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.watchers, d)
	}
}

// passed is told how a run ended, and returns what to make of its error.
func (g *Circuit) passed(err error, probe bool) error {
	outcome := bus.OutcomeOf(err).Outcome
	switch {
	case probe && outcome == bus.Done:
		g.Reset()
		return nil
	case probe:
		g.spend(time.Now())
	}
	if _, _, closed := g.Tripped(); closed && (outcome == bus.Errored || outcome == bus.Retried) {
		return &bus.OutcomeError{Outcome: bus.Released, Err: err}
	}
	return err
}

// changed has the dispatcher claim for the consumers of the circuit, if they may start something.
func (d *dispatcher) changed(g *Circuit) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.consumers {
		if c.gate == g {
			c.activate()
		}
	}
	d.work.Broadcast()
	d.room.Broadcast()
}

// watchGates has the dispatcher hear of changes of circuits, until stop is called.
func (d *dispatcher) watchGates() (stop func()) {
	var stops []func()
	for _, c := range d.consumers {
		if c.gate != nil {
			stops = append(stops, c.gate.watch(d))
		}
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// ungated leaves out what may not be claimed now, since its consumer's circuit is open.
func (d *dispatcher) ungated(wants []store.Want) []store.Want {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	return slices.DeleteFunc(slices.Clone(wants), func(want store.Want) bool {
		return !d.startableLocked(d.byName[want.Consumer], now).until.IsZero()
	})
}

// behindCircuit reports whether a message waits behind a circuit that stops its consumer, and is no probe.
func behindCircuit(t *task) bool {
	probe, closed := t.consumer.gate.shut()
	return closed && (time.Now().Before(probe) || len(t.consumer.queue) > 1)
}

// closedGates lists the consumers whose circuits are open.
func (d *dispatcher) closedGates() (list []bus.OpenCircuit) {
	for _, c := range d.consumers {
		if c.gate == nil {
			continue
		}
		if since, reason, closed := c.gate.Tripped(); closed {
			list = append(list, bus.OpenCircuit{Consumer: c.Name(), Since: since, Reason: errorlog.Text(reason)})
		}
	}
	return list
}
