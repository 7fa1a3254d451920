package dialect

import (
	"context"
	"strconv"
	"time"
)

type clockKey struct{}

// WithClock makes every statement under the context take its time from now instead of the
// database's clock. Test kits use it.
func WithClock(ctx context.Context, now func() time.Time) context.Context {
	return context.WithValue(ctx, clockKey{}, now)
}

// fixedClock returns the test kit's time, if there is one.
func fixedClock(ctx context.Context) (time.Time, bool) {
	if now, ok := ctx.Value(clockKey{}).(func() time.Time); ok {
		return now(), true
	}
	return time.Time{}, false
}

// Clock returns the time of this process's clock, or the fixed instant of a test kit.
func Clock(ctx context.Context) time.Time {
	if t, ok := fixedClock(ctx); ok {
		return t
	}
	return time.Now()
}

// HasFixedClock reports whether statements take their time from a test kit.
func HasFixedClock(ctx context.Context) bool {
	_, ok := fixedClock(ctx)
	return ok
}

// SameMicros returns the microseconds of an instant that is stored as such.
func SameMicros(instant string) string { return instant }

// Micros formats an instant for databases that store integers: microseconds since 1970.
func Micros(t time.Time) string { return strconv.FormatInt(t.UnixMicro(), 10) }
