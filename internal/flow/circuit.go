package flow

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
)

const (
	firstProbe   = time.Second
	longestProbe = 30 * time.Second
	// Never is longer than any circuit breaker waits: the process that opened it decides when it
	// ends.
	Never = 365 * 24 * time.Hour
)

// Circuit is the state of an outbox.Circuit, or of a circuit breaker. The zero value is closed. It is safe
// for concurrent use, and must not be copied.
type Circuit struct {
	mu        sync.Mutex
	since     time.Time // zero while it is closed
	reason    error
	nextProbe time.Time // when the next probe may start
	probing   bool      // a probe has started and its outcome is not known yet
	interval  time.Duration
	watchers  map[*func()]bool
}

type circuitKey struct{}

// SetCircuit gives a consumer a circuit.
func SetCircuit(c *bus.ConsumerConfig, circuit *Circuit) { access.SetValue(c, circuitKey{}, circuit) }

// CircuitOf returns the circuit of a consumer, or nil. It returns an error for a circuit that is
// set and nil.
func CircuitOf(name string, settings bus.ConsumerConfig) (*Circuit, error) {
	c, set := access.Value(&settings, circuitKey{}).(*Circuit)
	if set && c == nil {
		return nil, fmt.Errorf("outbox: consumer %q: the circuit is nil", name)
	}
	return c, nil
}

// errTripped is the reason of a circuit that was tripped without one.
var errTripped = errors.New("outbox: the circuit was tripped without a reason")

// Trip opens the circuit and returns an error that releases a message without counting an attempt.
// If the circuit is open, Trip only replaces the reason.
func (c *Circuit) Trip(reason error) error {
	reason = cmp.Or(reason, errTripped)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reason = reason
	if c.since.IsZero() {
		c.since, c.interval, c.probing = time.Now(), firstProbe, false
		c.nextProbe = c.since.Add(c.interval)
	}
	return &bus.OutcomeError{Outcome: bus.Released, Err: reason}
}

// Reset closes the circuit. It has no effect on a closed one.
func (c *Circuit) Reset() {
	c.changed(func() { c.since, c.reason, c.probing = time.Time{}, nil, false })
}

// Hold trips the circuit, with a probe at the given time and no other.
func (c *Circuit) Hold(reason error, probe time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		c.since, c.probing = time.Now(), false
	}
	c.reason, c.nextProbe, c.interval = reason, probe, Never
}

// Explain replaces the reason of an open circuit.
func (c *Circuit) Explain(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.since.IsZero() {
		c.reason = reason
	}
}

// Tripped returns since when the circuit is open, and why. open is false if it is closed.
func (c *Circuit) Tripped() (since time.Time, reason error, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.since, c.reason, !c.since.IsZero()
}

// NextProbe reports whether the circuit is open, and when a probe may start. A nil circuit is closed.
func (c *Circuit) NextProbe() (probe time.Time, open bool) {
	if c == nil {
		return time.Time{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.probing {
		return time.Now().Add(Never), !c.since.IsZero()
	}
	return c.nextProbe, !c.since.IsZero()
}

// TakeProbe takes the right to probe, of which there is one. [Circuit.Ended] spends it with the
// outcome of the consumer's function. Whatever ends the message before that has to return it.
func (c *Circuit) TakeProbe(now time.Time) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() || c.probing || now.Before(c.nextProbe) {
		return false
	}
	c.probing = true
	return true
}

// ReturnProbe returns the right to probe for the next message.
func (c *Circuit) ReturnProbe() { c.changed(func() { c.probing = false }) }

// failProbe ends a failed probe: the next one may start after twice as long.
func (c *Circuit) failProbe(now time.Time) {
	c.changed(func() {
		if !c.probing {
			return // the circuit was reset meanwhile
		}
		if c.interval < Never {
			c.interval = min(2*c.interval, longestProbe)
		}
		c.probing, c.nextProbe = false, now.Add(c.interval)
	})
}

// Ended records how a run ended and returns the resulting error.
func (c *Circuit) Ended(err error, probe bool) error {
	outcome := bus.OutcomeOf(err).Outcome
	switch {
	case probe && outcome == bus.Done:
		c.Reset()
		return nil
	case probe:
		c.failProbe(time.Now())
	}
	if _, _, open := c.Tripped(); open && (outcome == bus.Errored || outcome == bus.Retried) {
		return &bus.OutcomeError{Outcome: bus.Released, Err: err}
	}
	return err
}

// Watch calls fn after each change that may let something start, until stop is called.
func (c *Circuit) Watch(fn func()) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers == nil {
		c.watchers = make(map[*func()]bool)
	}
	c.watchers[&fn] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers, &fn)
	}
}

// changed makes a change and calls the watchers.
func (c *Circuit) changed(change func()) {
	c.mu.Lock()
	change()
	watchers := slices.Collect(maps.Keys(c.watchers))
	c.mu.Unlock()
	for _, fn := range watchers {
		(*fn)()
	}
}
