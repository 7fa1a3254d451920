package bus

import (
	"encoding/json"
	"time"
)

// MarshalJSON implements [json.Marshaler]. Ages are seconds, and left out where there is
// none.
func (q QueueStats) MarshalJSON() ([]byte, error) {
	type plain QueueStats
	return json.Marshal(struct {
		plain
		OldestReady    float64 `json:"oldest_ready_seconds,omitempty"`
		OldestPoisoned float64 `json:"oldest_poisoned_seconds,omitempty"`
	}{plain(q), inSeconds(q.OldestReady), inSeconds(q.OldestPoisoned)})
}

// inSeconds rounds to what is of interest in an age.
func inSeconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }
