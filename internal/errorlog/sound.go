package errorlog

import (
	"errors"
	"fmt"
)

// unsoundError replaces an error whose methods panic.
type unsoundError struct{ of string }

// Error implements error.
func (e *unsoundError) Error() string {
	return "bus: an error of type " + e.of + " has a method that panics: is it a nil pointer?"
}

var errNone = errors.New("bus: no error given")

// Sound returns err, or a substitute if one of its methods panics. Walking its chain once calls
// everything that errors.Is and errors.As call.
func Sound(err error) (safe error) {
	if err == nil {
		return nil
	}
	defer func() {
		if recover() != nil {
			safe = &unsoundError{of: fmt.Sprintf("%T", err)}
		}
	}()
	_ = errors.Is(err, errNone)
	_, _ = errors.AsType[*unsoundError](err)
	return err
}
