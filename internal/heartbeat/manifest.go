package heartbeat

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Manifest is what a run consumes, fires, projects and relays, with its settings.
type Manifest struct {
	Consumers   []Consumer `json:"consumers,omitempty"`
	Schedules   []string   `json:"schedules,omitempty"`   // payload types whose schedules it fires
	Projections []string   `json:"projections,omitempty"` // their names
	Relays      []string   `json:"relays,omitempty"`      // their names
	Connections int        `json:"connections,omitempty"` // of its pool that it may hold at once, if known
}

// Consumer is a consumer of a processor.
type Consumer struct {
	Name         string        `json:"name"`
	Former       []string      `json:"former,omitempty"` // names under which its messages may be stored, too
	PayloadTypes []string      `json:"payload_types"`
	Timeout      time.Duration `json:"timeout"` // in nanoseconds
	MaxAttempts  int           `json:"max_attempts"`
}

// Takes reports whether messages with that stored consumer and payload type are this consumer's.
func (c Consumer) Takes(consumer, payloadType string) bool {
	return (c.Name == consumer || slices.Contains(c.Former, consumer)) && slices.Contains(c.PayloadTypes, payloadType)
}

// State is the current state of a run.
type State struct {
	Every        time.Duration `json:"every"`                   // between reports, in nanoseconds
	Running      int           `json:"running"`                 // consumers that run
	Queued       int           `json:"queued"`                  // claimed messages that wait for a worker
	Limit        int           `json:"limit"`                   // the most that may run at once
	Stuck        []string      `json:"stuck,omitempty"`         // consumers that ignored their timeout and still run
	OpenCircuits []string      `json:"open_circuits,omitempty"` // consumers that a circuit or breaker stops in this process
}

// leastAlive is the shortest silence after which a process counts as lost.
const leastAlive = 45 * time.Second

// Lost reports whether a process has been silent for so long that it counts as lost, unless it has
// stopped.
func Lost(row store.Process, s State) bool {
	return row.Now.Sub(row.SeenAt.Time) > max(leastAlive, 3*s.Every)
}
