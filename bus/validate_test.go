package bus_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
)

// brokenError has a method that panics for its text through a nil pointer.
type brokenError struct{ text string }

func (e *brokenError) Error() string { return e.text }

func TestErrorTextSurvivesABrokenError(t *testing.T) {
	t.Parallel()
	var broken *brokenError
	if got, want := errorlog.Text(broken), "bus: the Error method of *bus_test.brokenError panicked"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := errorlog.Text(errors.New("fine")); got != "fine" {
		t.Errorf("got %q, want fine", got)
	}
}

func TestPanickingWithAnOutcomeErrorIsAPanic(t *testing.T) {
	t.Parallel()
	for _, value := range []any{bus.Snooze(time.Second), bus.Discard(errors.New("x")), (*bus.PanicError)(nil)} {
		err := error(isolate.NewPanic(value))
		if got := bus.OutcomeOf(err).Outcome; got != bus.Errored {
			t.Errorf("panic(%v): got %s, want it unclassified", value, got)
		}
		if errorlog.Text(err) == "" {
			t.Errorf("panic(%v): got no text", value)
		}
	}
	if got := bus.OutcomeOf((*bus.OutcomeError)(nil)).Outcome; got != bus.Errored {
		t.Errorf("a nil verdict: got %s, want it unclassified", got)
	}
}

// panicky cannot even be unmarshalled.
type panicky struct{}

func (panicky) PayloadType() string           { return "panicky" }
func (*panicky) UnmarshalJSON(b []byte) error { panic("secret " + string(b)) }

func TestPanicWhileDecodingIsADecodeError(t *testing.T) {
	t.Parallel()
	consumer := bus.Consume("c", func(context.Context, panicky) error { return nil })
	for what, err := range map[string]error{
		"Consume":      consumer.Consume(t.Context(), bus.JSON{}, []byte(`"canary"`)),
		"CheckPayload": access.CheckPayload(consumer, bus.JSON{}, []byte(`"canary"`)),
	} {
		var decode *bus.DecodeError
		if !errors.As(err, &decode) || bus.OutcomeOf(err).Outcome != bus.Condemned || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: got %v, want a condemned DecodeError without the payload", what, err)
		}
	}
}

func TestContextsDoNotPrintTheMessage(t *testing.T) {
	t.Parallel()
	type key struct{}
	ctx := context.WithValue(bus.ContextWithMessage(t.Context(), &bus.Message{Payload: []byte("canary")}), key{}, 1)
	if text := ctx.(interface{ String() string }).String(); strings.Contains(text, "canary") {
		t.Errorf("got %s, want no payload", text)
	}
}

func TestCheckRefusesWhatCannotBeStored(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		m    bus.Message
		want error
	}{
		{"nothing wrong", bus.Message{Payload: []byte("{}"), Headers: map[string]string{"k": "v"}, InsertID: "key"}, nil},
		{"a payload above the limit", bus.Message{Payload: make([]byte, 11)}, bus.ErrTooLarge},
		{"a NUL byte in the payload", bus.Message{Payload: []byte{0}}, bus.ErrInvalidText},
		{"invalid UTF-8 in the payload", bus.Message{Payload: []byte{0xff}}, bus.ErrInvalidText},
		{"headers above the limit", bus.Message{Headers: map[string]string{"k": strings.Repeat("v", limits.Headers)}}, bus.ErrTooLarge},
		{"a nameless header", bus.Message{Headers: map[string]string{"": "v"}}, bus.ErrInvalidOption},
		{"a key above the limit", bus.Message{InsertID: strings.Repeat("k", limits.Key+1)}, bus.ErrTooLarge},
		{"a negative delay", bus.Message{Delay: -1}, bus.ErrInvalidOption},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if err := access.CheckMessage(&test.m, 10); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// rude panics in one of its methods.
type rude struct{ in string }

func (r rude) Error() string { return "rude" }

func (r rude) Unwrap() error { return r.or("Unwrap", nil) }

func (r rude) Is(error) bool { _ = r.or("Is", nil); return false }

func (r rude) As(any) bool { _ = r.or("As", nil); return false }

func (r rude) or(method string, err error) error {
	if r.in == method {
		panic(method)
	}
	return err
}

// TestOutcomeOfIsSafeToLookAt, whatever the error does, also behind a verdict.
func TestOutcomeOfIsSafeToLookAt(t *testing.T) {
	t.Parallel()
	for _, err := range []error{rude{"Unwrap"}, rude{"Is"}, rude{"As"}, (*bus.OutcomeError)(nil), fmt.Errorf("in: %w", rude{"As"}),
		errors.Join(nil, rude{"Is"})} {
		for want, err := range map[bus.Outcome]error{bus.Errored: err, bus.Condemned: bus.Permanent(err)} {
			v := bus.OutcomeOf(err)
			_ = errors.Is(v.Err, bus.ErrTimeout)
			var other *bus.DecodeError
			_ = errors.As(v.Err, &other)
			if v.Outcome != want || !strings.Contains(v.Err.Error(), "has a method that panics") {
				t.Errorf("%T: got %s, %v, want %s and an error that says what it is", err, v.Outcome, v.Err, want)
			}
		}
	}
}

func TestErrorTextIsBounded(t *testing.T) {
	t.Parallel()
	text := errorlog.Text(errors.New(strings.Repeat("ä", 1<<20)))
	if len(text) != 8<<10 || strings.Trim(text, "ä") != "" {
		t.Errorf("got %d bytes, want 8 KiB of whole characters", len(text))
	}
	if text := errorlog.Text(errors.New("x" + strings.Repeat("ä", 1<<20))); len(text) != 8<<10-1 {
		t.Errorf("got %d bytes, want 8 KiB but for half a character", len(text))
	}
}

func TestDrainErrorNamesEachConsumerOnce(t *testing.T) {
	t.Parallel()
	err := &bus.DrainError{Consumers: []string{"b", "a", "b", "b"}}
	if got, want := err.Error(), `outbox: stopped with 4 consumers still running: "a", "b" x 3`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
