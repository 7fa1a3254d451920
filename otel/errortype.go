package otel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
)

// Stand-ins for what makes the inner layers of a chain end without returning: a
// panic, which goes on untouched, or, hardly ever, runtime.Goexit.
var (
	errPanicked error = &bus.PanicError{}                                   // in the consume chain
	errUnwound        = errors.New("otel: the inner layers did not return") // in the produce chain
)

// permanentReason is how a verdict tells that bus.Permanent made it. It is
// immutable.
var permanentReason = bus.VerdictOf(bus.Permanent(errUnwound)).Reason

// errorType names the kind of an error: the value of error.type. It is stable
// for errors of the library; others are named by their ErrorType method, else by
// their Go type. The error's text is never looked at.
func errorType(err error) (name string) {
	defer func() {
		if recover() != nil { // out of a method of the error
			name = conventionalErrorType(nil)
		}
	}()
	if name := ownErrorType(err); name != "" {
		return name
	}
	if named, ok := errors.AsType[interface {
		error
		ErrorType() string
	}](err); ok {
		return conventionalErrorType(named)
	}
	if bus.VerdictOf(err).Reason == permanentReason {
		return system + ".permanent"
	}
	return conventionalErrorType(innermost(err))
}

// ownErrorType returns "" for an error that is not the library's.
func ownErrorType(err error) string {
	if _, ok := errors.AsType[*bus.PanicError](err); ok {
		return system + ".handler_panic"
	}
	known := []struct {
		err  error
		name string
	}{
		{isolate.ErrGoexit, ".handler_goexit"},
		{bus.ErrAbandoned, ".handler_abandoned"},
		{bus.ErrTimeout, ".handler_timeout"},
		{bus.ErrLeaseLost, ".lease_lost"},
		{bus.ErrStopping, ".stopping"},
		{bus.ErrLate, ".late"},
		{bus.ErrCancelled, ".cancelled"},
		{bus.ErrNoConsumer, ".no_consumer"},
		{bus.ErrBadPayload, ".bad_payload"},
		{bus.ErrTooLarge, ".too_large"},
		{bus.ErrBadText, ".bad_text"},
		{bus.ErrBadOption, ".bad_option"},
		{errUnwound, ".panic"},
	}
	for _, k := range known {
		if errors.Is(err, k.err) {
			return system + k.name
		}
	}
	if _, ok := errors.AsType[*bus.DecodeError](err); ok {
		return system + ".decode"
	}
	return ""
}

// innermost takes off verdicts and what fmt and errors wrap around an error. It
// returns nil for a verdict without an error.
func innermost(err error) error {
	for {
		switch wrapper := err.(type) {
		case *bus.Verdict:
			err = wrapper.Err
			continue
		case interface{ Unwrap() []error }:
			if inner := wrapper.Unwrap(); fromStandardLibrary(err) && len(inner) > 0 {
				err = inner[0]
				continue
			}
		case interface{ Unwrap() error }:
			if inner := wrapper.Unwrap(); fromStandardLibrary(err) && inner != nil {
				err = inner
				continue
			}
		}
		return err
	}
}

// fromStandardLibrary tells whether err was made by fmt.Errorf or errors.Join.
func fromStandardLibrary(err error) bool {
	name := fmt.Sprintf("%T", err)
	return strings.HasPrefix(name, "*fmt.") || strings.HasPrefix(name, "*errors.")
}

// overtime makes a consumer's exceeded deadline known as the consumer timeout,
// whichever layer has set it. A shorter deadline of the consumer's own stays
// what it is.
func overtime(m *bus.Message, err error, took time.Duration) error {
	if m.Config != nil && m.Config.Timeout > 0 && took >= m.Config.Timeout && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", bus.ErrTimeout, err)
	}
	return err
}
