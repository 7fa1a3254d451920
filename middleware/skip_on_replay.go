package middleware

import (
	"context"
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// SkipOnReplay passes over messages that are delivered again on request, by eventlog.Log.Replay
// or to a receiver with relay.MarkAsReplay,
// for the consumers named, or for all when none is: those whose effects must not
// happen twice, such as mails. What is passed over counts as done.
func SkipOnReplay(consumers ...string) bus.Middleware {
	consumers = slices.Clone(consumers)
	return func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Message) error {
			if m.Mode() == "replay" && (len(consumers) == 0 || slices.Contains(consumers, m.Consumer)) {
				return nil
			}
			return next(ctx, m)
		}
	}
}
