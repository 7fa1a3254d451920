package errtype

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
)

// permanentReason is how a verdict tells that bus.Permanent made it. It is
// immutable.
var permanentReason = bus.OutcomeOf(bus.Permanent(errors.New("an error"))).Reason

const system = "asyncmonolith"

// Other is the kind of what has none: the convention of OpenTelemetry for error.type, whose rule for
// Go types this package follows as well.
const Other = "_OTHER"

// Of names the kind of an error. It is stable for errors of the library; others are named by their
// ErrorType method, else by their Go type. The error's text is never looked at.
func Of(err error) (name string) {
	defer func() {
		if recover() != nil { // out of a method of the error
			name = Other
		}
	}()
	if name := own(err); name != "" {
		return name
	}
	if named, ok := errors.AsType[interface {
		error
		ErrorType() string
	}](err); ok {
		if name := named.ErrorType(); name != "" {
			return name
		}
	}
	if bus.OutcomeOf(err).Reason == permanentReason {
		return system + ".permanent"
	}
	return goType(innermost(err))
}

// own returns "" for an error that is not the library's.
func own(err error) string {
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
		{bus.ErrExpired, ".late"},
		{bus.ErrCancelled, ".cancelled"},
		{bus.ErrNoConsumer, ".no_consumer"},
		{bus.ErrInvalidPayload, ".bad_payload"},
		{bus.ErrTooLarge, ".too_large"},
		{bus.ErrInvalidText, ".bad_text"},
		{bus.ErrInvalidOption, ".bad_option"},
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
		case *bus.OutcomeError:
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

// fromStandardLibrary reports whether err was made by fmt.Errorf or errors.Join.
func fromStandardLibrary(err error) bool {
	name := fmt.Sprintf("%T", err)
	return strings.HasPrefix(name, "*fmt.") || strings.HasPrefix(name, "*errors.")
}

// goType is the name of an error's type, with the path of its package.
func goType(err error) string {
	if err == nil {
		return Other
	}
	t := reflect.TypeOf(err)
	if t.PkgPath() == "" || t.Name() == "" { // most likely a pointer
		return t.String()
	}
	return t.PkgPath() + "." + t.Name()
}
