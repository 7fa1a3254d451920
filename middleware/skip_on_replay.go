package middleware

import (
	"context"
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
)

// SkipOnReplay skips replayed messages for the named consumers, or for all if none are named. Use
// it for effects that must not happen twice, such as mails. Replayed messages come from
// eventlog.Log.Replay, from a projection that is rebuilt or has a new version, or from a receiver
// with inbox.MarkAsReplay. A skipped message counts as done.
func SkipOnReplay(consumers ...string) bus.Middleware {
	consumers = slices.Clone(consumers)
	return func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Message) error {
			if access.Mode(m) == access.Replay && (len(consumers) == 0 || slices.Contains(consumers, m.Consumer)) {
				return nil
			}
			return next(ctx, m)
		}
	}
}
