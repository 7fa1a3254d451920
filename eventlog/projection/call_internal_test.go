package projection

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Internal: a Reset may take minutes, which no test on a database waits for.

// TestAResetThatHangsIsGivenUp, and its session is ended, so that the transaction can be. One that ends with its context is not
// abandoned.
func TestAResetThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reset     func(free chan struct{}) func(context.Context, bun.Tx) error
		after     time.Duration
		abandoned bool
	}{
		"ignores its context": {func(free chan struct{}) func(context.Context, bun.Tx) error {
			return func(context.Context, bun.Tx) error { <-free; return nil }
		}, resetTime + abandonGrace, true},
		"ends with it": {func(chan struct{}) func(context.Context, bun.Tx) error {
			return func(ctx context.Context, _ bun.Tx) error { <-ctx.Done(); return ctx.Err() }
		}, resetTime, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			free := make(chan struct{})
			defer close(free)
			ended, interrupts, began := make(chan error), 0, time.Now()
			go func() {
				ended <- reset(t.Context(), test.reset(free), bun.Tx{}, func() error { interrupts++; return nil })
			}()
			select {
			case err := <-ended:
				if took := time.Since(began); took != test.after || errors.Is(err, bus.ErrAbandoned) != test.abandoned ||
					(interrupts == 1) != test.abandoned || !strings.Contains(err.Error(), "10m0s") {
					t.Errorf("%s: got %v and %d interrupts after %s, want it after %s, abandoned %t", name, err, interrupts, took, test.after,
						test.abandoned)
				}
			case <-time.After(time.Hour):
				t.Errorf("%s: got no end", name)
			}
		})
	}
}
