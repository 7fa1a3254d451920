package outbox

import (
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
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
type Circuit struct{ state flow.Circuit }

// WithCircuit gives a consumer a circuit, which several may share. NewProcessor refuses nil.
func WithCircuit(c *Circuit) bus.ConsumerOption {
	return func(config *bus.ConsumerConfig) {
		if c == nil {
			flow.SetCircuit(config, nil)
			return
		}
		flow.SetCircuit(config, &c.state)
	}
}

// Trip opens the circuit, and returns an error that wraps the reason. A handler that returns this
// error gives its message back with no attempt counted. While the circuit is open, Trip only
// replaces the reason.
func (c *Circuit) Trip(reason error) error { return c.state.Trip(reason) }

// Reset closes the circuit. It has no effect on one that is closed.
func (c *Circuit) Reset() { c.state.Reset() }

// Tripped returns since when the circuit is open, and why. False means that it is closed.
func (c *Circuit) Tripped() (since time.Time, reason error, open bool) { return c.state.Tripped() }
