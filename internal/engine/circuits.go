package engine

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// circuitChanged has the dispatcher look again for work of the circuit's consumers.
func (d *dispatcher) circuitChanged(g *flow.Circuit) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.consumers {
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
	for _, c := range d.consumers {
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
	now := time.Now()
	return slices.DeleteFunc(slices.Clone(wants), func(want store.Want) bool {
		return !d.startableLocked(d.byName[want.Consumer], now).until.IsZero()
	})
}

// behindCircuit reports whether an open circuit keeps a message from starting, even as a probe.
func behindCircuit(t *task) bool {
	probe, closed := t.consumer.circuit.NextProbe()
	return closed && (time.Now().Before(probe) || len(t.consumer.queue) > 1)
}

// openCircuits lists the consumers whose circuits are open.
func (d *dispatcher) openCircuits() (list []bus.OpenCircuit) {
	for _, c := range d.consumers {
		if c.circuit == nil {
			continue
		}
		if since, reason, closed := c.circuit.Tripped(); closed {
			list = append(list, bus.OpenCircuit{Consumer: c.Name(), Since: since, Reason: errorlog.Text(reason)})
		}
	}
	return list
}
