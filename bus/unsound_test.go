package bus_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
)

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
			if v.Outcome != want || !strings.Contains(v.Err.Error(), "panics when it is asked") {
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
