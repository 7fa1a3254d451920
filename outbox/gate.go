package outbox

import (
	"errors"
	"fmt"
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

// Gate stops consumers of this process for as long as something that they need is away.
// Their handlers close it, as may anybody who notices:
//
//	if err := stripe.Charge(ctx, card); errors.Is(err, errUnreachable) {
//		return gate.Close(err)
//	}
//
// While it is closed nothing is claimed for the consumers that are [Gated] by it, but for
// single messages that probe: one starts after a second, the next two seconds later, and then
// after twice as long each time, up to 30 s. A probe that is done opens the gate. Messages that
// were claimed are given back, and a handler that returns an error costs its message no
// attempt: nothing is written to what waits.
//
// It knows of this process only; other processes go on. The zero value is open. It is safe
// for concurrent use, and must not be copied.
type Gate struct {
	mu       sync.Mutex
	since    time.Time // zero while it is open
	reason   error
	probe    time.Time // when the next one may start
	interval time.Duration
	watchers map[*dispatcher]bool
}

type gateKey struct{}

// Gated puts a consumer behind a gate, which several may share. NewProcessor refuses nil.
func Gated(g *Gate) bus.ConsumerOption {
	return func(c *bus.ConsumerConfig) { c.SetValue(gateKey{}, g) }
}

// gateOf returns the gate of a consumer, or nil.
func gateOf(name string, settings bus.ConsumerConfig) (*Gate, error) {
	g, gated := settings.Value(gateKey{}).(*Gate)
	if gated && g == nil {
		return nil, fmt.Errorf("outbox: consumer %q: the gate is nil", name)
	}
	return g, nil
}

// errClosed stands for the reason of a gate that is closed without one.
var errClosed = errors.New("outbox: the gate was closed")

// Close closes the gate, and returns an error for a handler to return, which gives the message
// back with no attempt counted. It wraps the reason. While the gate is closed Close only notes
// the reason.
func (g *Gate) Close(reason error) error {
	if reason == nil {
		reason = errClosed
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reason = reason; g.since.IsZero() {
		g.since, g.interval = time.Now(), firstProbe
		g.probe = g.since.Add(g.interval)
	}
	return &bus.Verdict{Outcome: bus.Released, Err: reason}
}

// Open opens the gate. It has no effect on one that is open.
func (g *Gate) Open() {
	g.mu.Lock()
	watchers := make([]*dispatcher, 0, len(g.watchers))
	for d := range g.watchers {
		watchers = append(watchers, d)
	}
	g.since, g.reason = time.Time{}, nil
	g.mu.Unlock()
	for _, d := range watchers {
		d.opened(g)
	}
}

// Closed tells since when the gate is closed, and why. False means that it is open.
func (g *Gate) Closed() (since time.Time, reason error, closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.since, g.reason, !g.since.IsZero()
}

// shut tells whether the gate is closed, and when a probe may start.
func (g *Gate) shut() (probe time.Time, closed bool) {
	if g == nil {
		return time.Time{}, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.probe, !g.since.IsZero()
}

// watch tells the dispatcher of the gate's opening, until stop is called.
func (g *Gate) watch(d *dispatcher) (stop func()) {
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

// probing notes that a probe starts, and when the next may: however this one ends, unless it
// opens the gate.
func (g *Gate) probing(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.interval < never {
		g.interval = min(2*g.interval, longestProbe)
	}
	g.probe = now.Add(g.interval)
}

// passed is told how a run ended, and returns what to make of its error.
func (g *Gate) passed(err error, probe bool) error {
	outcome := bus.VerdictOf(err).Outcome
	if probe && outcome == bus.Done {
		g.Open()
		return nil
	}
	if _, _, closed := g.Closed(); closed && (outcome == bus.Unclassified || outcome == bus.Retried) {
		return &bus.Verdict{Outcome: bus.Released, Err: err}
	}
	return err
}

// opened has the dispatcher claim for the consumers that are behind the gate.
func (d *dispatcher) opened(g *Gate) {
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

// watchGates has the dispatcher hear of gates that open, until stop is called.
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

// gateLocked tells whether the gate of a consumer is closed, and if so whether a probe may
// be claimed, or start, now.
func (d *dispatcher) gateLocked(c *consumer) (closed, probes bool) {
	probe, closed := c.gate.shut()
	return closed, closed && c.running == 0 && !time.Now().Before(probe)
}

// ungated leaves out what may not be claimed now, since its consumer's gate is closed.
func (d *dispatcher) ungated(wants []store.Want) []store.Want {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(wants), func(want store.Want) bool {
		closed, probes := d.gateLocked(d.byName[want.Consumer])
		return closed && !probes
	})
}

// behindGate tells whether a message waits behind a gate that has closed, and is no probe.
func (d *dispatcher) behindGate(t *task) bool {
	closed, probes := d.gateLocked(t.consumer)
	return closed && (!probes || len(t.consumer.queue) > 1)
}

// closedGates lists the consumers whose gates are closed.
func (d *dispatcher) closedGates() (list []bus.ClosedGate) {
	for _, c := range d.consumers {
		if c.gate == nil {
			continue
		}
		if since, reason, closed := c.gate.Closed(); closed {
			list = append(list, bus.ClosedGate{Consumer: c.Name(), Since: since, Reason: errorlog.Text(reason)})
		}
	}
	return list
}
