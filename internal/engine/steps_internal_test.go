package engine

import (
	"fmt"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// The wall clock was set ahead: the lease is over for the process, and its claim is in the database still.
func TestALeaseThatEndsBetweenStepsIsNoAttempt(t *testing.T) {
	t.Parallel()
	err := new(transactor).ofSteps(t.Context(), nil, fmt.Errorf("charge: %w", bus.ErrLeaseLost))
	if got := bus.OutcomeOf(err).Outcome; got != bus.Released {
		t.Errorf("outcome of %v: got %v, want %v", err, got, bus.Released)
	}
}
