package middleware_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
)

var errMail = errors.New("mail server is down")

// delivery returns a message on its given attempt, with the settings that a
// processor fills in by default.
func delivery(attempt int) *bus.Message {
	return &bus.Message{
		PayloadType: "invoice.due", Consumer: "send-invoice", Attempt: attempt,
		Config: &bus.ConsumerConfig{Timeout: 10 * time.Second, MaxAttempts: 5, AttemptDelay: 10 * time.Second},
	}
}

// returns is a handler that returns err.
func returns(err error) bus.Handler {
	return func(context.Context, *bus.Message) error { return err }
}

// panics is a handler that panics with value.
func panics(value any) bus.Handler {
	return func(context.Context, *bus.Message) error { panic(value) }
}

// run composes layers around h and reads the outcome of one message.
func run(t *testing.T, m *bus.Message, h bus.Handler, layers ...bus.Middleware) bus.OutcomeError {
	t.Helper()
	return bus.OutcomeOf(bus.Compose(h, layers...)(t.Context(), m))
}

// The positions of the layers that Default returns, without telemetry.
const (
	logLayer = iota
	poisonLayer
	attemptsLayer
	recoverLayer
	timeoutLayer
	layerCount
)

// quiet returns the default chain without log lines.
func quiet() []bus.Middleware {
	return middleware.Default(middleware.Options{Logger: slog.New(slog.DiscardHandler)})
}

// without returns a copy of the chain that lacks one layer.
func without(chain []bus.Middleware, layer int) []bus.Middleware {
	return slices.Delete(slices.Clone(chain), layer, layer+1)
}

func TestDefaultOrderOfTheLayers(t *testing.T) {
	t.Parallel()
	lines := newRecorder(slog.LevelDebug)
	var calls []string
	mark := func(name string) bus.Middleware {
		return func(next bus.Handler) bus.Handler {
			return func(ctx context.Context, m *bus.Message) error {
				calls = append(calls, name)
				return next(ctx, m)
			}
		}
	}
	chain := middleware.Default(middleware.Options{
		Logger: slog.New(lines), Telemetry: mark("telemetry"), Middleware: []bus.Middleware{mark("user 1"), mark("user 2")},
		OnPoison: func(context.Context, *bus.Message, string, error) { calls = append(calls, "hook") },
	})
	if len(chain) != 1+layerCount+2 {
		t.Fatalf("got %d layers, want telemetry, the %d of the library and 2 of the user", len(chain), layerCount)
	}
	// Each layer, alone around a handler, does what no other layer does.
	works := []struct {
		name string
		does func(t *testing.T, layer bus.Middleware) bool
	}{
		{"telemetry", func(t *testing.T, layer bus.Middleware) bool {
			run(t, delivery(1), returns(nil), layer)
			return slices.Equal(calls, []string{"telemetry"})
		}},
		{"log", func(t *testing.T, layer bus.Middleware) bool {
			run(t, delivery(1), returns(nil), layer)
			return len(lines.take()) == 1
		}},
		{"poison", func(t *testing.T, layer bus.Middleware) bool {
			return run(t, delivery(1), returns(bus.Permanent(errMail)), layer).Outcome == bus.Poisoned && slices.Equal(calls, []string{"hook"})
		}},
		{"attempts", func(t *testing.T, layer bus.Middleware) bool {
			return run(t, delivery(1), returns(errMail), layer).Outcome == bus.Retried
		}},
		{"recover", func(t *testing.T, layer bus.Middleware) (recovers bool) {
			defer func() { _ = recover() }()
			run(t, delivery(1), panics("boom"), layer)
			return true
		}},
		{"timeout", func(t *testing.T, layer bus.Middleware) (limited bool) {
			run(t, delivery(1), func(ctx context.Context, _ *bus.Message) error { _, limited = ctx.Deadline(); return nil }, layer)
			return limited
		}},
		{"the user's first", func(t *testing.T, layer bus.Middleware) bool {
			run(t, delivery(1), returns(nil), layer)
			return slices.Equal(calls, []string{"user 1"})
		}},
		{"the user's second", func(t *testing.T, layer bus.Middleware) bool {
			run(t, delivery(1), returns(nil), layer)
			return slices.Equal(calls, []string{"user 2"})
		}},
	}
	for want, w := range works {
		for at, layer := range chain {
			calls, lines.records = nil, nil
			if got := w.does(t, layer); got != (at == want) {
				t.Errorf("layer %d does the work of %s: got %t, want %t", at, w.name, got, at == want)
			}
		}
	}
}

// The order as it shows from outside: a panic after the deadline, at the last attempt.
func TestDefaultChainAsAWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lines := newRecorder(slog.LevelDebug)
		var events []string
		note := func(ctx context.Context, event string) {
			if _, limited := ctx.Deadline(); limited {
				event += ", limited"
			}
			events = append(events, event)
		}
		watch := func(name string) bus.Middleware {
			return func(next bus.Handler) bus.Handler {
				return func(ctx context.Context, m *bus.Message) error {
					note(ctx, "enter "+name)
					err := next(ctx, m)
					note(ctx, "leave "+name+" with "+bus.OutcomeOf(err).Outcome.String())
					return err
				}
			}
		}
		lines.notify = func(ctx context.Context) { note(ctx, "log") }
		chain := middleware.Default(middleware.Options{
			Logger: slog.New(lines), Telemetry: watch("telemetry"), Middleware: []bus.Middleware{watch("user")},
			OnPoison: func(ctx context.Context, _ *bus.Message, _ string, err error) { note(ctx, "hook: "+err.Error()) },
		})
		late := func(ctx context.Context, _ *bus.Message) error {
			note(ctx, "handler")
			<-ctx.Done()
			panic(ctx.Err())
		}
		got := run(t, delivery(5), late, chain...)
		if got.Outcome != bus.Poisoned || got.Reason != "attempt 5 of 5 failed" {
			t.Errorf("got %s, reason %q, want the panic counted as an attempt and the message poisoned", got.Outcome, got.Reason)
		}
		want := []string{
			"enter telemetry", "enter user, limited", "handler, limited",
			// The panic unwinds the layer of the user and the timeout. The hook has a limit of its own.
			"hook: bus: handler panicked: context deadline exceeded, limited",
			"log", "leave telemetry with " + bus.Poisoned.String(),
		}
		if !slices.Equal(events, want) {
			t.Errorf("got events %q, want %q", events, want)
		}
	})
}

// passThrough is a layer that changes nothing.
func passThrough(next bus.Handler) bus.Handler { return next }

func TestDefaultOptionsWork(t *testing.T) {
	t.Parallel()
	if got := len(middleware.Default(middleware.Options{})); got != layerCount {
		t.Errorf("got %d layers, want %d: neither telemetry nor the user's", got, layerCount)
	}
	own := func(int) time.Duration { return 17 * time.Second }
	chain := middleware.Default(middleware.Options{Logger: slog.New(slog.DiscardHandler), Backoff: own})
	if got := run(t, delivery(1), returns(errMail), chain...); got.Delay != 17*time.Second {
		t.Errorf("got delay %s, want that of the given backoff, 17s", got.Delay)
	}
}

func TestDefaultDoesNotKeepTheUsersSlice(t *testing.T) {
	t.Parallel()
	user := make([]bus.Middleware, 1, 8)
	user[0] = passThrough
	options := middleware.Options{Middleware: user}
	chain := append(middleware.Default(options), nil)
	if again := middleware.Default(options); len(again) != layerCount+1 || again[layerCount] == nil || chain[layerCount] == nil {
		t.Errorf("got %d layers, want %d, none nil", len(again), layerCount+1)
	}
}

func TestDefaultChainOutcomes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		handler bus.Handler
		attempt int
		want    bus.Outcome
	}{
		{"success is done", returns(nil), 1, bus.Done},
		{"success at the last attempt is done", returns(nil), 5, bus.Done},
		{"an error is retried", returns(errMail), 1, bus.Retried},
		{"an error is retried while attempts are left", returns(errMail), 4, bus.Retried},
		{"the last attempt poisons", returns(errMail), 5, bus.Poisoned},
		{"a panic is retried", panics("boom"), 4, bus.Retried},
		{"a panic at the last attempt poisons", panics("boom"), 5, bus.Poisoned},
		{"a permanent error poisons at once", returns(bus.Permanent(errMail)), 1, bus.Poisoned},
		{"a permanent error of backoff poisons at once", returns(backoff.Permanent(errMail)), 1, bus.Poisoned},
		{"a retry with a delay is retried", returns(bus.RetryAfter(time.Hour, errMail)), 4, bus.Retried},
		{"a retry with a delay poisons at the last attempt", returns(bus.RetryAfter(time.Hour, errMail)), 5, bus.Poisoned},
		{"a snooze at the last attempt is a snooze", returns(bus.Snooze(time.Hour)), 5, bus.Snoozed},
		{"a discard at the last attempt is a discard", returns(bus.Discard(errMail)), 5, bus.Discarded},
		{"a release at the last attempt is a release", returns(&bus.OutcomeError{Outcome: bus.Released, Err: bus.ErrStopping}), 5, bus.Released},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := run(t, delivery(test.attempt), test.handler, quiet()...).Outcome; got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// What a layer gives is gone when it is left out, and nothing else changes.
func TestDefaultChainWithALayerLeftOut(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		left    int
		handler bus.Handler
		attempt int
		want    bus.Outcome
	}{
		{"no log: an error is retried still", logLayer, returns(errMail), 1, bus.Retried},
		{"no log: the last attempt poisons still", logLayer, returns(errMail), 5, bus.Poisoned},
		{"no attempts: an error stays unclassified", attemptsLayer, returns(errMail), 1, bus.Errored},
		{"no attempts: the last attempt stays unclassified", attemptsLayer, returns(errMail), 5, bus.Errored},
		{"no attempts: a panic stays unclassified", attemptsLayer, panics("boom"), 5, bus.Errored},
		{"no attempts: a permanent error of backoff stays unclassified", attemptsLayer, returns(backoff.Permanent(errMail)), 1, bus.Errored},
		{"no attempts: a permanent error poisons still", attemptsLayer, returns(bus.Permanent(errMail)), 1, bus.Poisoned},
		{"no attempts: a retry with a delay does not end", attemptsLayer, returns(bus.RetryAfter(time.Hour, errMail)), 500, bus.Retried},
		{"no poison: a permanent error stays condemned", poisonLayer, returns(bus.Permanent(errMail)), 1, bus.Condemned},
		{"no poison: the last attempt stays condemned", poisonLayer, returns(errMail), 5, bus.Condemned},
		{"no poison: an error is retried still", poisonLayer, returns(errMail), 1, bus.Retried},
		{"no timeout: an error is retried still", timeoutLayer, returns(errMail), 1, bus.Retried},
		{"no timeout: the last attempt poisons still", timeoutLayer, returns(errMail), 5, bus.Poisoned},
		{"no recover: an error is retried still", recoverLayer, returns(errMail), 1, bus.Retried},
		{"no recover: the last attempt poisons still", recoverLayer, returns(errMail), 5, bus.Poisoned},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := run(t, delivery(test.attempt), test.handler, without(quiet(), test.left)...).Outcome; got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

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
