package schedule

import (
	"context"
	"maps"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// firedForHeader holds the fire time of a message, in RFC 3339.
const firedForHeader = "asyncmonolith-fired-for"

// ScheduledTimeFromContext returns the fire time of a schedule's message, in UTC. The schedule may
// have fired later, after an outage for instance. For a [Scheduler.Trigger] it is the time of that
// call. Use the context of a consumer. It returns false when the message does not come from a
// schedule. The time travels in the header "asyncmonolith-fired-for", which layers of both chains
// see.
func ScheduledTimeFromContext(ctx context.Context) (time.Time, bool) {
	m, ok := bus.MessageFromContext(ctx)
	if !ok {
		return time.Time{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, m.Headers[firedForHeader])
	return at.UTC(), err == nil
}

// withFiredFor adds the header if the limit on headers allows it.
func withFiredFor(headers map[string]string, at time.Time) map[string]string {
	fired := with(headers, firedForHeader, at.UTC().Format(time.RFC3339Nano))
	if limits.CheckHeaders(fired) != nil {
		return headers
	}
	return fired
}

// with returns a copy of headers with one more.
func with(headers map[string]string, key, value string) map[string]string {
	copied := make(map[string]string, len(headers)+1)
	maps.Copy(copied, headers)
	copied[key] = value
	return copied
}

// skipOverlapHeader marks the row of a schedule with [SkipOverlap]. Its messages do not have the
// header.
const skipOverlapHeader = "asyncmonolith-skip-overlap"

// headersOf returns the headers of a schedule's messages, the schema of its payload, and whether it
// has [SkipOverlap].
func headersOf(row store.Schedule) (headers map[string]string, schema int, skipOverlap bool) {
	headers = store.Headers(row.Headers)
	if _, skipOverlap = headers[skipOverlapHeader]; skipOverlap {
		delete(headers, skipOverlapHeader)
	}
	return headers, store.TakeSchema(headers), skipOverlap
}
