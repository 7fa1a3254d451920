package flow

import (
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Instant formats a time for people.
func Instant(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// Rounded rounds a duration for people.
func Rounded(d time.Duration) time.Duration {
	if d >= time.Minute {
		return d.Round(time.Second)
	}
	return d.Round(time.Millisecond)
}

// OpenBreaker is an open circuit breaker.
type OpenBreaker struct {
	OpenedAt     time.Time
	Failed, Runs int64
	NextProbeAt  time.Time
}

// NewOpenBreaker reads the row of an open circuit breaker.
func NewOpenBreaker(row store.Breaker) OpenBreaker {
	return OpenBreaker{OpenedAt: row.OpenedAt.Time, NextProbeAt: row.OpenUntil.Time, Failed: row.Failed, Runs: row.Done + row.Failed}
}

// String describes it for people, in the same words everywhere.
func (b OpenBreaker) String() string {
	return fmt.Sprintf(
		"circuit open since %s: %s; next try at %s", Instant(b.OpenedAt), FailedRuns(b.Failed, b.Runs), Instant(b.NextProbeAt),
	)
}

// FailedRuns describes why a circuit breaker is open.
func FailedRuns(failed, runs int64) string { return fmt.Sprintf("%d of %d runs failed", failed, runs) }

// PausedBy describes who paused a consumer and why: "by ada: the provider is down". It is empty if
// neither is known.
func PausedBy(by, note string) string {
	switch {
	case by != "" && note != "":
		return "by " + by + ": " + note
	case by != "":
		return "by " + by
	default:
		return note
	}
}

// BlockedKeys describes how many keys of a consumer are blocked.
func BlockedKeys(n int64) string {
	switch {
	case n == 1:
		return "1 key waits for its poisoned message"
	case n >= store.MostCounted:
		return fmt.Sprintf("%d or more keys wait for their poisoned messages", store.MostCounted)
	default:
		return fmt.Sprintf("%d keys wait for their poisoned messages", n)
	}
}
