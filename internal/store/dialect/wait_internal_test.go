package dialect

import (
	"testing"
	"time"
)

// TestADistantDueTimeIsNotPast: the microseconds until the year 9999 are more than a Duration can hold.
func TestADistantDueTimeIsNotPast(t *testing.T) {
	t.Parallel()
	distant := time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC).UnixMicro()
	if got := (LaneState{Next: distant}).Wait(); got <= 0 {
		t.Errorf("wait until the next message of a key: got %s, want more than 0", got)
	}
	if got := (LaneState{Next: 1500}).Wait(); got != 1500*time.Microsecond {
		t.Errorf("wait of 1,500 µs: got %s", got)
	}
}
