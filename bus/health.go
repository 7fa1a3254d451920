package bus

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
)

// ErrRunning is returned by the Run method of a processor, runner or notifier while another Run of
// the same value has not returned. Use errors.Is.
var ErrRunning = errors.New("already running")

// Health is a snapshot of a processor of messages or schedules, of a runner of projections, log
// forwarders or receivers, or of a notifier. It is made in memory, without a query.
type Health struct {
	// Ready is true while Run runs and the database answers. A message processor is not ready while
	// abandoned consumers occupy all of its Concurrency.
	Ready bool `json:"ready"`
	// LastClaim is when a message processor last claimed messages; zero means not since Run began.
	LastClaim time.Time `json:"last_claim,omitzero"`
	// Abandoned names the consumers or projections that ignored their timeout and still run, and the
	// consumers with a layer or upcaster that has not returned a lease and 5 s after the timeout.
	Abandoned []string `json:"abandoned,omitempty"`
	// Unprepared is true if a message processor no longer prepares statements, because a connection
	// has lost one: behind a connection pooler, or after DISCARD ALL. The database then plans each
	// statement anew, which costs time only. It stays true until the process ends.
	Unprepared bool `json:"unprepared,omitempty"`
	// OpenCircuits lists the consumers stopped by a circuit (outbox.Circuit) or circuit breaker
	// ([CircuitBreaker]), the log forwarders whose circuit is open, and the receivers that receive
	// nothing.
	OpenCircuits []OpenCircuit `json:"open_circuits,omitempty"`
	// Err is the database's last error while it does not answer, or what Run returned.
	Err error `json:"-"`
}

// OpenCircuit is a consumer whose circuit is open in this process, or a log forwarder or receiver
// whose broker is unavailable.
type OpenCircuit struct {
	Consumer string    `json:"consumer"` // "relay:" or "receive:" precedes the name of a log forwarder or receiver
	Since    time.Time `json:"since"`
	Reason   string    `json:"reason"` // text of the error that opened it
}

// MarshalJSON implements json.Marshaler, for output only: it writes the error's text.
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
