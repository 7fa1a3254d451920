package otel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errtype"
)

// Errors for inner layers that end without returning: by a panic, which is not recovered, or
// rarely by runtime.Goexit.
var (
	errPanicked error = &bus.PanicError{}                                   // in the consume chain
	errUnwound        = errors.New("otel: the inner layers did not return") // in the produce chain
)

func errorType(err error) string {
	if errors.Is(err, errUnwound) {
		return system + ".panic"
	}
	return errtype.Of(err)
}

// overtime reports a consumer's exceeded deadline as the consumer timeout, whichever layer set it.
// A shorter deadline of the consumer's own stays unchanged.
func overtime(m *bus.Message, err error, took time.Duration) error {
	if m.Config != nil && m.Config.Timeout > 0 && took >= m.Config.Timeout && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", bus.ErrTimeout, err)
	}
	return err
}
