package middleware_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
)

// explode is found in the stack by its name.
func explode(value any) { panic(value) }

func TestRecoverTurnsPanicsIntoErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		value any
		text  string
		is    error
	}{
		{"a text", "boom", "bus: handler panicked: boom", nil},
		{"an error", errMail, "bus: handler panicked: mail server is down", errMail},
		{"an error of the standard library", io.ErrUnexpectedEOF, "bus: handler panicked: unexpected EOF", io.ErrUnexpectedEOF},
		{"a value of any type", 42, "bus: handler panicked: 42", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			handler := middleware.Recover()(func(context.Context, *bus.Message) error { explode(test.value); return nil })
			err := handler(t.Context(), delivery(1))
			var panicked *bus.PanicError
			if !errors.As(err, &panicked) {
				t.Fatalf("got %v, want a *bus.PanicError", err)
			}
			if err.Error() != test.text || panicked.Value != test.value {
				t.Errorf("got text %q and value %v, want %q and %v", err, panicked.Value, test.text, test.value)
			}
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("got %v, want it to wrap %v", err, test.is)
			}
			if !strings.Contains(string(panicked.Stack), "middleware_test.explode") {
				t.Errorf("got stack %s, want the function that panicked in it", panicked.Stack)
			}
			if got := bus.OutcomeOf(err).Outcome; got != bus.Errored {
				t.Errorf("got %s, want %s: attempts judges it as any other error", got, bus.Errored)
			}
		})
	}
}

func TestRecoverOfPanicNil(t *testing.T) {
	t.Parallel()
	err := middleware.Recover()(panics(nil))(t.Context(), delivery(1))
	var isNil *runtime.PanicNilError
	if !errors.As(err, &isNil) {
		t.Errorf("got %v, want an error, and a *runtime.PanicNilError behind it", err)
	}
}

func TestRecoverOfARuntimeError(t *testing.T) {
	t.Parallel()
	err := middleware.Recover()(func(_ context.Context, m *bus.Message) error { return errors.New(m.Headers["a"][:3]) })(t.Context(),
		delivery(1))
	var bounds runtime.Error
	if !errors.As(err, &bounds) {
		t.Errorf("got %v, want a runtime.Error behind it", err)
	}
}

func TestRecoverKeepsTheStackOfAPanicPassedOn(t *testing.T) {
	t.Parallel()
	first := &bus.PanicError{Value: "boom", Stack: []byte("the stack of another goroutine")}
	if got := middleware.Recover()(panics(first))(t.Context(), delivery(1)); got != first {
		t.Errorf("got %v, want the very *bus.PanicError that was passed on", got)
	}
}

func TestRecoverLeavesReturnedErrorsAlone(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, errMail, bus.Permanent(errMail)} {
		if got := middleware.Recover()(returns(err))(t.Context(), delivery(1)); got != err {
			t.Errorf("got %v, want %v", got, err)
		}
	}
}
