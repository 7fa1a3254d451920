package schedule

import (
	"context"
	"maps"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// firedForHeader has the instant that a message was fired for, in RFC 3339.
const firedForHeader = "asyncmonolith-fired-for"

// ScheduledTimeFromContext returns the instant that the schedule of the message was fired for, in
// UTC. That is the fire time, not when the schedule was fired, which is later after an outage; for
// a [Scheduler.Trigger] it is when that was called. Call it with the context of a consumer. It
// returns false when the message is not a schedule's. The instant travels in the header
// "asyncmonolith-fired-for", which layers of either chain see, too.
func ScheduledTimeFromContext(ctx context.Context) (time.Time, bool) {
	m, ok := bus.MessageFromContext(ctx)
	if !ok {
		return time.Time{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, m.Headers[firedForHeader])
	return at.UTC(), err == nil
}

// withFiredFor adds the header, unless there is no room left for it.
func withFiredFor(headers map[string]string, at time.Time) map[string]string {
	fired := with(headers, firedForHeader, at.UTC().Format(time.RFC3339Nano))
	if limits.CheckHeaders(fired) != nil {
		return headers
	}
	return fired
}

// with returns a copy of headers that has one more.
func with(headers map[string]string, key, value string) map[string]string {
	copied := make(map[string]string, len(headers)+1)
	maps.Copy(copied, headers)
	copied[key] = value
	return copied
}

// skipOverlapHeader marks the row of a schedule with [SkipOverlap]. Its messages do not have the header.
const skipOverlapHeader = "asyncmonolith-skip-overlap"

// headersOf returns the headers of a schedule's messages, and whether they are not to overlap.
func headersOf(row store.Schedule) (headers map[string]string, skipOverlap bool) {
	headers = store.Headers(row.Headers)
	if _, skipOverlap = headers[skipOverlapHeader]; skipOverlap {
		delete(headers, skipOverlapHeader)
	}
	return headers, skipOverlap
}
