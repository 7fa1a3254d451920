package steps_test

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/steps"
)

// row has the steps of one message.
type row struct {
	text   string
	lapsed bool   // the lease
	loaded func() // called by Load
}

func (r *row) Live() bool { return !r.lapsed }

func (r *row) Load(context.Context) (string, error) {
	if r.loaded != nil {
		r.loaded()
	}
	return r.text, nil
}

func (r *row) Append(_ context.Context, line string) error {
	r.text += line
	return nil
}

// sealed is a codec around JSON, as one that encrypts.
type sealed struct{}

func (sealed) Encode(payload any) ([]byte, error) {
	text, err := bus.JSON{}.Encode(payload)
	return []byte(base64.StdEncoding.EncodeToString(text)), err
}

func (sealed) Decode(text []byte, into any) error {
	plain, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil {
		return err
	}
	return bus.JSON{}.Decode(plain, into)
}

// plain is a codec of strings.
type plain struct{}

func (plain) Encode(payload any) ([]byte, error) { return []byte(payload.(string)), nil }

func (plain) Decode(text []byte, into any) error {
	*into.(*string) = string(text)
	return nil
}

// step runs a step that returns value, and returns its result.
func step[T any](t *testing.T, storage steps.Storage, codec bus.Codec, attempt int, value T) (result T, called bool) {
	t.Helper()
	err := steps.New(storage, codec, attempt).Run(t.Context(), "a", &result, func() (any, error) {
		called, result = true, value
		return result, nil
	})
	if err != nil {
		t.Errorf("%T, attempt %d: %v", value, attempt, err)
	}
	return result, called
}

// TestANilResultNeedsNoCodec: bus.JSON refuses null, and a codec around it does not show it.
func TestANilResultNeedsNoCodec(t *testing.T) {
	t.Parallel()
	for _, codec := range []bus.Codec{bus.JSON{}, sealed{}} {
		pointer, list, none := new(row), new(row), new(row)
		for attempt := 1; attempt <= 2; attempt++ {
			first := attempt == 1
			if got, called := step[*int](t, pointer, codec, attempt, nil); got != nil || called != first {
				t.Errorf("%T, pointer, attempt %d: got %v, called %t", codec, attempt, got, called)
			}
			if got, called := step[[]string](t, list, codec, attempt, nil); got != nil || called != first {
				t.Errorf("%T, slice, attempt %d: got %v, called %t", codec, attempt, got, called)
			}
			if got, called := step[any](t, none, codec, attempt, nil); got != nil || called != first {
				t.Errorf("%T, interface, attempt %d: got %v, called %t", codec, attempt, got, called)
			}
		}
	}
}

// TestTheTextNullOfAnotherCodec is a result like any other.
func TestTheTextNullOfAnotherCodec(t *testing.T) {
	t.Parallel()
	storage := new(row)
	for attempt := 1; attempt <= 2; attempt++ {
		if got, _ := step(t, storage, plain{}, attempt, "null"); got != "null" {
			t.Errorf("attempt %d: got %q, want null", attempt, got)
		}
	}
}

// TestALeaseThatEndsWhileStepsAreRead: another process may have stored the step since.
func TestALeaseThatEndsWhileStepsAreRead(t *testing.T) {
	t.Parallel()
	storage := new(row)
	storage.loaded = func() { storage.lapsed = true }
	err := steps.New(storage, bus.JSON{}, 1).Run(t.Context(), "a", new(int), func() (any, error) {
		t.Error("the function was called")
		return 1, nil
	})
	if !errors.Is(err, bus.ErrLeaseLost) || strings.Contains(storage.text, "a") {
		t.Errorf("got %v and %q, want bus.ErrLeaseLost and nothing stored", err, storage.text)
	}
}
