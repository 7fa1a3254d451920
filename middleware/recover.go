package middleware

import (
	"context"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
)

// Recover turns a panic into a *bus.PanicError, which counts as a failed attempt like any other
// error. Without this layer, the processor still catches the panic, but counts no attempt.
func Recover() bus.Middleware {
	return func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Message) error { return isolate.Guarded(ctx, m, next) }
	}
}
