package heartbeat

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
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
	Limit        int           `json:"limit,omitempty"`      // of runs in all processes together
	LimitName    string        `json:"limit_name,omitempty"` // of a shared limit
	Rate         int           `json:"rate,omitempty"`       // starts in RatePer, in all processes together
	RatePer      time.Duration `json:"rate_per,omitempty"`   // in nanoseconds
	RateBurst    int           `json:"rate_burst,omitempty"`
}

// Takes reports whether messages with that stored consumer and payload type are this consumer's.
func (c Consumer) Takes(consumer, payloadType string) bool {
	return (c.Name == consumer || slices.Contains(c.Former, consumer)) && slices.Contains(c.PayloadTypes, payloadType)
}

// State is the current state of a run.
type State struct {
	Every        time.Duration `json:"every"`                   // between reports, in nanoseconds
	Instance     string        `json:"instance,omitempty"`      // [Instance]; older versions do not report it
	Operation    int64         `json:"operation,omitempty"`     // the only one that it runs; 0: any
	Running      int           `json:"running"`                 // consumers that run
	Queued       int           `json:"queued"`                  // claimed messages that wait for a worker
	Limit        int           `json:"limit"`                   // the most that may run at once
	Stuck        []string      `json:"stuck,omitempty"`         // consumers that ignored their timeout and still run
	OpenCircuits []string      `json:"open_circuits,omitempty"` // consumers of Circuits, which programs of before read
	// Circuits are the circuits and circuit breakers that are open in this process.
	Circuits []bus.OpenCircuit `json:"circuits,omitempty"`
}

// mostReason is how many bytes of a circuit's reason are reported.
const mostReason = 300

// reported fills in OpenCircuits and shortens reasons.
func (s State) reported() State {
	s.Circuits = store.Each(s.Circuits, func(c bus.OpenCircuit) bus.OpenCircuit {
		c.Reason, c.Since = errorlog.Clean(c.Reason, mostReason), c.Since.UTC()
		return c
	})
	s.OpenCircuits = store.Each(s.Circuits, func(c bus.OpenCircuit) string { return c.Consumer })
	return s
}

// Open returns the open circuits. A program of before reports their names alone.
func (s State) Open() []bus.OpenCircuit {
	if len(s.Circuits) == 0 {
		return store.Each(s.OpenCircuits, func(name string) bus.OpenCircuit { return bus.OpenCircuit{Consumer: name} })
	}
	return s.Circuits
}

// leastAlive is the shortest silence after which a process counts as lost.
const leastAlive = 45 * time.Second

// Lost reports whether a process has been silent for so long that it counts as lost, unless it has
// stopped.
func Lost(row store.Process, s State) bool {
	return row.Now.Sub(row.SeenAt.Time) > max(leastAlive, 3*s.Every)
}
