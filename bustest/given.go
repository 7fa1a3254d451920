package bustest

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/decider"
)

// History is the events before a command: none when made by [Decider], or those of
// [History.Given]. It belongs to one test.
type History[S, C any, E bus.Payload] struct {
	t      testing.TB
	d      decider.Decider[S, C, E]
	events []E
}

// Decider tests a decider without a database: given some events, when a command comes, then these
// events happen. It fails the test for invalid fields of the decider, and for a state that a
// snapshot would not keep: see decider.Decider.Check.
//
//	bustest.Decider(t, accounts).Given(Opened{}, Deposited{10}).When(Withdraw{4}).Then(Withdrawn{4})
func Decider[S, C any, E bus.Payload](t testing.TB, d decider.Decider[S, C, E]) *History[S, C, E] {
	t.Helper()
	if err := d.Check(); err != nil {
		t.Fatalf("bustest: Decider: %v", err)
	}
	return &History[S, C, E]{t: t, d: d}
}

// state returns a new state, because Decide and Evolve may write to its maps.
func (h *History[S, C, E]) state() (state S) {
	if h.d.Initial != nil {
		state = h.d.Initial()
	}
	for _, event := range h.events {
		state = h.d.Evolve(state, event)
	}
	return state
}

// Given returns the history followed by these events.
func (h *History[S, C, E]) Given(events ...E) *History[S, C, E] {
	h.t.Helper()
	longer := &History[S, C, E]{t: h.t, d: h.d, events: slices.Concat(h.events, events)}
	if err := h.d.Check(longer.state()); err != nil {
		h.t.Errorf("bustest: Given: %v", err)
	}
	return longer
}

// Decision is a decider's result for a command.
type Decision[S any, E bus.Payload] struct {
	// State is the state after the events.
	State S

	t      testing.TB
	events []E
	err    error
}

// When decides on a command, with the test's context.
func (h *History[S, C, E]) When(command C) *Decision[S, E] {
	h.t.Helper()
	d := &Decision[S, E]{t: h.t, State: h.state()}
	d.events, d.err = h.d.Decide(h.t.Context(), d.State, command)
	for _, event := range d.events {
		d.State = h.d.Evolve(d.State, event)
	}
	return d
}

// Then fails the test unless the command caused exactly these events.
func (d *Decision[S, E]) Then(events ...E) {
	d.t.Helper()
	if d.err != nil {
		d.t.Errorf("bustest: Then: got error %v, want events %+v", d.err, events)
		return
	}
	if len(d.events)+len(events) > 0 && !reflect.DeepEqual(d.events, events) {
		d.t.Errorf("bustest: Then: got events %+v, want %+v", d.events, events)
	}
}

// ThenError fails the test unless the command was rejected with an error that wraps target.
func (d *Decision[S, E]) ThenError(target error) {
	d.t.Helper()
	if target == nil {
		d.t.Errorf("bustest: ThenError: the target is nil: use Then for a command that is allowed")
		return
	}
	if d.err == nil || !errors.Is(d.err, target) {
		d.t.Errorf("bustest: ThenError: got error %v and events %+v, want error %v", d.err, d.events, target)
	}
}
