package bus_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
)

var errMail = errors.New("mail server is down")

func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	wrap := func(err error) error { return fmt.Errorf("send receipt: %w", err) }
	tests := []struct {
		name string
		err  error
		want bus.OutcomeError // Err is checked by its text and identity
		text string
	}{
		{"no error is done", nil, bus.OutcomeError{Outcome: bus.Done}, ""},
		{"any error is unclassified", errMail, bus.OutcomeError{Outcome: bus.Errored}, "mail server is down"},
		{"a wrapped error is unclassified", wrap(errMail), bus.OutcomeError{Outcome: bus.Errored}, "send receipt: mail server is down"},
		{"a timeout is unclassified", bus.ErrTimeout, bus.OutcomeError{Outcome: bus.Errored}, bus.ErrTimeout.Error()},
		{"a panic is unclassified", isolate.NewPanic(errMail), bus.OutcomeError{Outcome: bus.Errored},
			"bus: handler panicked: mail server is down"},
		{"a permanent error", bus.Permanent(errMail), bus.OutcomeError{Outcome: bus.Condemned, Reason: "permanent error"}, "mail server is down"},
		{"a wrapped permanent error keeps the text around it", wrap(bus.Permanent(errMail)),
			bus.OutcomeError{Outcome: bus.Condemned, Reason: "permanent error"}, "send receipt: mail server is down"},
		{"a permanent error wrapped twice", wrap(wrap(bus.Permanent(errMail))),
			bus.OutcomeError{Outcome: bus.Condemned, Reason: "permanent error"}, "send receipt: send receipt: mail server is down"},
		{"a permanent error made of a wrapped one", bus.Permanent(wrap(errMail)),
			bus.OutcomeError{Outcome: bus.Condemned, Reason: "permanent error"}, "send receipt: mail server is down"},
		{"a joined permanent error", errors.Join(errMail, bus.Permanent(errMail)),
			bus.OutcomeError{Outcome: bus.Condemned, Reason: "permanent error"}, "mail server is down\nmail server is down"},
		{"an error wrapping several", fmt.Errorf("%w and %w", io.EOF, bus.RetryAfter(time.Minute, errMail)),
			bus.OutcomeError{Outcome: bus.Retried, Delay: time.Minute}, "EOF and mail server is down"},
		{"of joined verdicts the first counts", errors.Join(bus.RetryAfter(time.Second, errMail), bus.Permanent(errMail)),
			bus.OutcomeError{Outcome: bus.Retried, Delay: time.Second}, "mail server is down\nmail server is down"},
		{"of nested verdicts the outer counts", bus.Permanent(bus.RetryAfter(time.Second, errMail)),
			bus.OutcomeError{Outcome: bus.Condemned, Reason: "permanent error"}, "mail server is down"},
		{"a retry after a delay", bus.RetryAfter(time.Hour, errMail), bus.OutcomeError{Outcome: bus.Retried, Delay: time.Hour},
			"mail server is down"},
		{"a retry after a negative delay", bus.RetryAfter(-time.Hour, errMail), bus.OutcomeError{Outcome: bus.Retried}, "mail server is down"},
		{"a wrapped snooze", wrap(bus.Snooze(time.Minute)), bus.OutcomeError{Outcome: bus.Snoozed, Delay: time.Minute}, "send receipt: snoozed"},
		{"a discarded error", bus.Discard(errMail), bus.OutcomeError{Outcome: bus.Discarded}, "mail server is down"},
		{"a wrapped discarded error", wrap(bus.Discard(errMail)), bus.OutcomeError{Outcome: bus.Discarded}, "send receipt: mail server is down"},
		{"a verdict of one's own", &bus.OutcomeError{Outcome: bus.Poisoned, Reason: "seen enough", Err: errMail},
			bus.OutcomeError{Outcome: bus.Poisoned, Reason: "seen enough"}, "mail server is down"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := bus.OutcomeOf(test.err)
			if got.Outcome != test.want.Outcome || got.Delay != test.want.Delay || got.Reason != test.want.Reason {
				t.Errorf("got %s, delay %s, reason %q, want %s, %s, %q",
					got.Outcome, got.Delay, got.Reason, test.want.Outcome, test.want.Delay, test.want.Reason)
			}
			if text := textOf(got.Err); text != test.text {
				t.Errorf("got Err %q, want %q", text, test.text)
			}
			if errors.Is(test.err, errMail) && !errors.Is(got.Err, errMail) {
				t.Errorf("got Err %v, want it to wrap %v still", got.Err, errMail)
			}
		})
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestOutcomeOfASnoozeHasNoError(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{time.Minute, 0, -time.Minute} {
		want := bus.OutcomeError{Outcome: bus.Snoozed, Delay: max(d, 0)}
		if got := bus.OutcomeOf(bus.Snooze(d)); got != want {
			t.Errorf("Snooze(%s): got %+v, want %+v", d, got, want)
		}
	}
}

func TestOutcomeOfLeavesTheErrorAlone(t *testing.T) {
	t.Parallel()
	original := bus.Permanent(errMail)
	got := bus.OutcomeOf(fmt.Errorf("outer: %w", original))
	got.Outcome, got.Delay = bus.Snoozed, time.Hour
	if again := bus.OutcomeOf(original); again.Outcome != bus.Condemned || again.Delay != 0 || again.Err != errMail {
		t.Errorf("got %+v, want the error unchanged", again)
	}
}

func TestNilErrorsStayNil(t *testing.T) {
	t.Parallel()
	if err := bus.Permanent(nil); err != nil {
		t.Errorf("Permanent(nil): got %v, want nil", err)
	}
	if err := bus.RetryAfter(time.Second, nil); err != nil {
		t.Errorf("RetryAfter(1s, nil): got %v, want nil", err)
	}
	if err := bus.Discard(nil); err != nil {
		t.Errorf("Discard(nil): got %v, want nil", err)
	}
	if got := bus.OutcomeOf(errors.Join(nil, bus.Permanent(nil))).Outcome; got != bus.Done {
		t.Errorf("OutcomeOf(errors.Join(nil, nil)): got %s, want %s", got, bus.Done)
	}
}

func TestOutcomeErrorsUnwrapToTheirError(t *testing.T) {
	t.Parallel()
	for _, err := range []error{bus.Permanent(errMail), bus.RetryAfter(0, errMail), bus.Discard(errMail)} {
		if !errors.Is(err, errMail) || errors.Unwrap(err) != errMail || err.Error() != errMail.Error() {
			t.Errorf("got %v wrapping %v, want the text and identity of %v", err, errors.Unwrap(err), errMail)
		}
	}
	if err := errors.Unwrap(bus.Snooze(0)); err != nil {
		t.Errorf("Unwrap of a snooze: got %v, want nil", err)
	}
}

func TestOutcomeErrorText(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		verdict bus.OutcomeError
		want    string
	}{
		{"the error comes first", bus.OutcomeError{Outcome: bus.Condemned, Reason: "reason", Err: errMail}, "mail server is down"},
		{"then the reason", bus.OutcomeError{Outcome: bus.Condemned, Reason: "reason"}, "reason"},
		{"then the outcome", bus.OutcomeError{Outcome: bus.Released}, "released"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := test.verdict.Error(); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestOutcomesHaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	outcomes := []bus.Outcome{bus.Done, bus.Discarded, bus.Retried, bus.Snoozed, bus.Condemned, bus.Poisoned, bus.Released, bus.Errored}
	seen := map[string]bus.Outcome{}
	for _, o := range outcomes {
		name := o.String()
		if other, taken := seen[name]; taken || name == "" || strings.HasPrefix(name, "outcome(") {
			t.Errorf("outcome %d: got name %q, shared with %d, want one of its own", o, name, other)
		}
		seen[name] = o
	}
	if got, want := bus.Outcome(200).String(), "outcome(200)"; got != want {
		t.Errorf("an unknown outcome: got %q, want %q", got, want)
	}
	if got := new(bus.Outcome).String(); got != "done" {
		t.Errorf("the zero outcome: got %q, want done", got)
	}
}

func TestTimeoutIsADeadline(t *testing.T) {
	t.Parallel()
	if !errors.Is(bus.ErrTimeout, context.DeadlineExceeded) {
		t.Errorf("ErrTimeout: got %v, want it to wrap %v", bus.ErrTimeout, context.DeadlineExceeded)
	}
	for _, err := range []error{bus.ErrStopping, bus.ErrLeaseLost, bus.ErrAbandoned, isolate.ErrGoexit} {
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, bus.ErrTimeout) {
			t.Errorf("%v: want it to be no timeout", err)
		}
	}
}

// recovered returns what NewPanicError makes of a panic with value.
func recovered(value any) (p *bus.PanicError) {
	defer func() { p = isolate.NewPanic(recover()) }()
	panic(value)
}

func TestPanicErrorUnwrapsErrorsOnly(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		value any
		text  string
		is    error // nil: unwraps to nothing
	}{
		{"an error", errMail, "bus: handler panicked: mail server is down", errMail},
		{"a wrapped error", fmt.Errorf("send: %w", errMail), "bus: handler panicked: send: mail server is down", errMail},
		{"a text", "boom", "bus: handler panicked: boom", nil},
		{"a number", 17, "bus: handler panicked: 17", nil},
		{"a struct", struct{ A, B int }{1, 2}, "bus: handler panicked: {1 2}", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := recovered(test.value)
			if got.Error() != test.text {
				t.Errorf("Error: got %q, want %q", got.Error(), test.text)
			}
			if inner := got.Unwrap(); (inner == nil) != (test.is == nil) || !errors.Is(inner, test.is) {
				t.Errorf("Unwrap: got %v, want %v", inner, test.is)
			}
			if got.Value != test.value {
				t.Errorf("Value: got %v, want %v", got.Value, test.value)
			}
		})
	}
}

func TestPanicErrorOfPanicNil(t *testing.T) {
	t.Parallel()
	var isNil *runtime.PanicNilError
	if got := recovered(nil); !errors.As(got, &isNil) {
		t.Errorf("panic(nil): got %v wrapping %v, want a *runtime.PanicNilError", got, got.Unwrap())
	}
}

func TestPanicErrorKeepsTheStack(t *testing.T) {
	t.Parallel()
	first := recovered("boom")
	if !strings.Contains(string(first.Stack), "bus_test.recovered") {
		t.Errorf("got stack %s, want the function that panicked in it", first.Stack)
	}
	if again := recovered(first); again != first {
		t.Errorf("a panic passed on: got %p, want the same *PanicError %p with its stack", again, first)
	}
}
