package dialect

import (
	"context"
	"time"
)

type clockKey struct{}

// WithClock makes every statement run under the context take its time from now
// instead of the database's clock. Test kits use it.
func WithClock(ctx context.Context, now func() time.Time) context.Context {
	return context.WithValue(ctx, clockKey{}, now)
}

// FixedClock returns the test kit's time, if there is one.
func FixedClock(ctx context.Context) (time.Time, bool) {
	if now, ok := ctx.Value(clockKey{}).(func() time.Time); ok {
		return now(), true
	}
	return time.Time{}, false
}
