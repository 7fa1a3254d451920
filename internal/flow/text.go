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
		"circuit open since %s: %d of %d runs failed; the next message is tried at %s", Instant(b.OpenedAt), b.Failed, b.Runs,
		Instant(b.NextProbeAt),
	)
}
