package outbox

import (
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
)

// Circuit pauses consumers of this process while a service they depend on is unavailable. Their
// handlers trip it, and so may any other code:
//
//	if err := stripe.Charge(ctx, card); errors.Is(err, errUnreachable) {
//		return circuit.Trip(err)
//	}
//
// While the circuit is open, the process claims only single probe messages for the consumers that
// have it ([WithCircuit]). The first probe starts after a second, the next two seconds later. The
// wait then doubles up to 30 s. A successful probe closes the circuit. Claimed messages are
// released. Pending messages are not changed. While the circuit is open, a handler's error,
// bus.RetryAfter included, releases the message without counting an attempt. bus.Permanent,
// bus.Discard, bus.Snooze and panics act as usual.
//
// A Circuit affects this process only. The zero value is closed. It is safe for concurrent use, and
// must not be copied.
type Circuit struct{ state flow.Circuit }

// WithCircuit gives a consumer a circuit. Consumers may share one. It excludes bus.CircuitBreaker.
// [NewProcessor] refuses both together, and a nil circuit.
func WithCircuit(c *Circuit) bus.ConsumerOption {
	return func(config *bus.ConsumerConfig) {
		if c == nil {
			flow.SetCircuit(config, nil)
			return
		}
		flow.SetCircuit(config, &c.state)
	}
}

// Trip opens the circuit and returns an error that wraps the reason. If a handler returns this
// error, its message is released and no attempt is counted. If the circuit is already open, Trip
// only replaces the reason.
func (c *Circuit) Trip(reason error) error { return c.state.Trip(reason) }

// Reset closes the circuit, if it is open.
func (c *Circuit) Reset() { c.state.Reset() }

// Tripped returns whether the circuit is open, and since when and why.
func (c *Circuit) Tripped() (since time.Time, reason error, open bool) { return c.state.Tripped() }
