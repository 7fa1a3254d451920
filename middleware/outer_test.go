package middleware_test

import (
	"context"
	"errors"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
)

// TestOuterLayersSeeTheFinalOutcome, the first of them outermost.
func TestOuterLayersSeeTheFinalOutcome(t *testing.T) {
	t.Parallel()
	var seen []bus.Outcome
	layer := func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Message) error {
			err := next(ctx, m)
			seen = append(seen, bus.OutcomeOf(err).Outcome)
			return err
		}
	}
	for attempt, want := range map[int]bus.Outcome{1: bus.Retried, 2: bus.Poisoned} {
		seen = nil
		failing := func(context.Context, *bus.Message) error { return errors.New("no") }
		chain := middleware.Default(middleware.Options{OuterMiddleware: []bus.Middleware{layer, layer}, Middleware: []bus.Middleware{layer}})
		_ = bus.Compose(failing, chain...)(t.Context(), &bus.Message{Attempt: attempt, Config: &bus.ConsumerConfig{MaxAttempts: 2}})
		if len(seen) != 3 || seen[0] != bus.Errored || seen[1] != want || seen[2] != want {
			t.Errorf("attempt %d: got %v, want the outer layers to see %s, and the inner one that nobody has judged", attempt, seen, want)
		}
	}
}
