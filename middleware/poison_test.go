package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
)

// told is what a hook was told.
type told struct {
	message *bus.Message
	reason  string
	err     error
	context any
}

type hookKey struct{}

// listen returns a hook and what it was told.
func listen() (middleware.OnPoison, *[]told) {
	var all []told
	return func(ctx context.Context, m *bus.Message, reason string, err error) {
		all = append(all, told{m, reason, err, ctx.Value(hookKey{})})
	}, &all
}

func TestPoisonTellsTheHookOnce(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		err    error
		reason string
		text   string
	}{
		{"a permanent error", bus.Permanent(errMail), "permanent error", "mail server is down"},
		{"a wrapped permanent error", fmt.Errorf("send: %w", bus.Permanent(errMail)), "permanent error", "send: mail server is down"},
		{"the last attempt", &bus.OutcomeError{Outcome: bus.Condemned, Reason: "attempt 5 of 5 failed", Err: errMail},
			"attempt 5 of 5 failed", "mail server is down"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			hook, calls := listen()
			m := delivery(5)
			ctx := context.WithValue(t.Context(), hookKey{}, "from the processor")
			got := bus.OutcomeOf(middleware.Poison(hook)(returns(test.err))(ctx, m))
			if got.Outcome != bus.Poisoned || got.Reason != test.reason || got.Err.Error() != test.text || !errors.Is(got.Err, errMail) {
				t.Errorf("got %s, reason %q, error %v, want %s, %q, %q", got.Outcome, got.Reason, got.Err, bus.Poisoned, test.reason, test.text)
			}
			if len(*calls) != 1 {
				t.Fatalf("the hook was called %d times, want once", len(*calls))
			}
			call := (*calls)[0]
			if call.message != m || call.reason != test.reason || call.err.Error() != test.text || !errors.Is(call.err, errMail) {
				t.Errorf("the hook was told of %p, %q, %v, want %p, %q, %q", call.message, call.reason, call.err, m, test.reason, test.text)
			}
			if call.context != "from the processor" {
				t.Errorf("the hook's context: got value %v, want the chain's", call.context)
			}
		})
	}
}

func TestPoisonPassesOtherOutcomesThrough(t *testing.T) {
	t.Parallel()
	verdicts := map[string]error{
		"success":                    nil,
		"an error":                   errMail,
		"a retry":                    bus.RetryAfter(time.Second, errMail),
		"a snooze":                   bus.Snooze(time.Second),
		"a discard":                  bus.Discard(errMail),
		"a release":                  &bus.OutcomeError{Outcome: bus.Released},
		"a message poisoned already": &bus.OutcomeError{Outcome: bus.Poisoned, Err: errMail},
	}
	for name, err := range verdicts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hook, calls := listen()
			if got := middleware.Poison(hook)(returns(err))(t.Context(), delivery(5)); got != err {
				t.Errorf("got %v, want the very error the handler returned, %v", got, err)
			}
			if len(*calls) != 0 {
				t.Errorf("the hook was told %+v, want it left alone", *calls)
			}
		})
	}
}

func TestPoisonWithoutAHook(t *testing.T) {
	t.Parallel()
	got := run(t, delivery(1), returns(bus.Permanent(errMail)), middleware.Poison(nil))
	if got.Outcome != bus.Poisoned || got.Err != errMail {
		t.Errorf("got %s, error %v, want %s, %v", got.Outcome, got.Err, bus.Poisoned, errMail)
	}
}

func TestPoisonOfAnOutcomeWithoutAnError(t *testing.T) {
	t.Parallel()
	hook, calls := listen()
	got := run(t, delivery(1), returns(&bus.OutcomeError{Outcome: bus.Condemned, Reason: "by decree"}), middleware.Poison(hook))
	if got.Outcome != bus.Poisoned || got.Err != nil || got.Error() != "by decree" {
		t.Errorf("got %s, error %v, text %q, want %s, none, the reason", got.Outcome, got.Err, got.Error(), bus.Poisoned)
	}
	if len(*calls) != 1 || (*calls)[0].reason != "by decree" || (*calls)[0].err != nil {
		t.Errorf("the hook was told %+v, want the reason and no error", *calls)
	}
}

func TestPoisonHookThatPanicsDoesNotKeepTheMessageAlive(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]any{
		"a text": "pager is down", "an error": errors.New("pager is down"), "nil": nil,
		"a verdict": bus.Snooze(time.Hour), "an error that wants a retry": bus.RetryAfter(time.Hour, errors.New("pager is down")),
	} {
		t.Run("panic with "+name, func(t *testing.T) {
			t.Parallel()
			hook := func(context.Context, *bus.Message, string, error) { panic(value) }
			got := run(t, delivery(5), returns(bus.Permanent(errMail)), middleware.Poison(hook))
			if got.Outcome != bus.Poisoned || got.Reason != "permanent error" || got.Delay != 0 {
				t.Errorf("got %s, reason %q, delay %s, want the message poisoned all the same", got.Outcome, got.Reason, got.Delay)
			}
			var panicked *bus.PanicError
			if !errors.Is(got.Err, errMail) || !errors.As(got.Err, &panicked) {
				t.Fatalf("got error %v, want the handler's and the hook's panic", got.Err)
			}
			if !strings.HasPrefix(got.Err.Error(), errMail.Error()) {
				t.Errorf("got text %q, want the handler's error first", got.Err)
			}
		})
	}
}

// A hook that waits for a server that does not answer would hold a worker for each poisoned message.
func TestPoisonEndsAHookThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		hook := func(ctx context.Context, _ *bus.Message, _ string, _ error) { <-ctx.Done() }
		got := run(t, delivery(5), returns(bus.Permanent(errMail)), middleware.Poison(hook))
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("a hook that waits for its context: got the outcome after %s, want 10s", took)
		}
		if got.Outcome != bus.Poisoned || got.Reason != "permanent error" || !errors.Is(got.Err, errMail) {
			t.Errorf("got %s, reason %q, error %v, want the message poisoned all the same", got.Outcome, got.Reason, got.Err)
		}
	})
}

func TestPoisonAbandonsAHookThatIgnoresItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls, release := make(chan struct{}, 10), make(chan struct{})
		defer close(release)
		layer := middleware.Poison(func(context.Context, *bus.Message, string, error) {
			calls <- struct{}{}
			<-release
		})
		for i := range 5 {
			start := time.Now()
			got := run(t, delivery(5), returns(bus.Permanent(errMail)), layer)
			want := 11 * time.Second
			if i == 4 { // 4 calls have not returned
				want = 0
			}
			if took := time.Since(start); took != want {
				t.Errorf("message %d: got the outcome after %s, want %s", i, took, want)
			}
			if got.Outcome != bus.Poisoned || !errors.Is(got.Err, errMail) || !errors.Is(got.Err, context.DeadlineExceeded) {
				t.Errorf("message %d: got %s, error %v, want it poisoned, with the handler's and the hook's error", i, got.Outcome, got.Err)
			}
			if text := got.Err.Error(); !strings.Contains(text, "middleware: OnPoison: ") {
				t.Errorf("message %d: got text %q, want the hook named", i, text)
			}
		}
		if len(calls) != 4 {
			t.Errorf("the hook was called %d times, want 4", len(calls))
		}
	})
}
