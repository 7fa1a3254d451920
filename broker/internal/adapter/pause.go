package adapter

import (
	"context"
	"time"
)

const (
	// FirstPause is the pause after the first of several failures in a row.
	FirstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
)

// PauseAfter waits after so many failures in a row: FirstPause, then twice as long each time, up to
// 5 s. It returns early when ctx ends.
func PauseAfter(ctx context.Context, failures int) {
	Pause(ctx, min(FirstPause<<min(failures-1, 10), longestPause))
}

// Pause waits, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
