package bus

import (
	"encoding/json"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
)

// Health is a snapshot of whatever has a Run: processors of messages and of schedules,
// the runners of projections and of relays, the notifier.
type Health struct {
	// Ready is true while Run runs, the database answers, and not too many consumers
	// were abandoned.
	Ready bool `json:"ready"`
	// LastClaim is when a processor of messages last claimed some; zero means not since
	// Run began.
	LastClaim time.Time `json:"last_claim,omitzero"`
	// Abandoned names the consumers, or projections, that ignored their timeout and are
	// still running.
	Abandoned []string `json:"abandoned,omitempty"`
	// Unprepared is true of a processor of messages that sends its statements as text until
	// the process ends, since a connection had lost those that it had prepared: behind a
	// connection pooler, or after DISCARD ALL. It is slower, and nothing else.
	Unprepared bool `json:"unprepared,omitempty"`
	// OpenCircuits lists the consumers that a circuit (outbox.Circuit) or a circuit breaker
	// (CircuitBreaker) stops, and the relays of a runner whose broker is away.
	OpenCircuits []OpenCircuit `json:"open_circuits,omitempty"`
	// Err is the database's last error while it does not answer, or what Run returned.
	Err error `json:"-"`
}

// OpenCircuit is a consumer whose circuit is open in this process, or a relay that waits for its
// broker.
type OpenCircuit struct {
	Consumer string    `json:"consumer"` // of a relay "receive:" or "relay:" and its name
	Since    time.Time `json:"since"`
	Reason   string    `json:"reason"` // the text of the error with which it was tripped
}

// MarshalJSON implements json.Marshaler, for output only: the error is its text.
func (h Health) MarshalJSON() ([]byte, error) {
	type plain Health
	var text string
	if h.Err != nil {
		text = errorlog.Text(h.Err)
	}
	return json.Marshal(struct {
		plain
		Err string `json:"error,omitempty"`
	}{plain(h), text})
}
