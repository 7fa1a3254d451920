package schedule

import (
	"context"
	"maps"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
)

// firedForHeader has the instant that a message was fired for, in RFC 3339.
const firedForHeader = "asyncmonolith-fired-for"

// FiredFor returns the instant that the schedule of the message was fired for, in UTC:
// the fire time, not when it came to that, which is later after an outage; and for a
// [Scheduler.RunNow], when somebody asked. Call it with the context of a consumer; it is
// false when the message is not a schedule's. The instant travels in the header
// "asyncmonolith-fired-for", which layers of either chain see, too.
func FiredFor(ctx context.Context) (time.Time, bool) {
	m, ok := bus.Current(ctx)
	if !ok {
		return time.Time{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, m.Headers[firedForHeader])
	return at.UTC(), err == nil
}

// withFiredFor adds the header, unless there is no room left for it.
func withFiredFor(headers map[string]string, at time.Time) map[string]string {
	with := maps.Clone(headers)
	if with == nil {
		with = make(map[string]string, 1)
	}
	with[firedForHeader] = at.UTC().Format(time.RFC3339Nano)
	if limits.CheckHeaders(with) != nil { // a schedule of an older release
		return headers
	}
	return with
}
