package admin

import (
	"errors"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// OpenBreaker describes a bus.CircuitBreaker that is open. No process starts a message of its
// consumer, except one probe at a time.
type OpenBreaker struct {
	OpenedAt time.Time `json:"opened_at"`
	// Failed is how many of the Runs in the window failed when it opened.
	Failed int64 `json:"failed"`
	Runs   int64 `json:"runs"`
	// NextProbeAt is the earliest start of the next probe: see [Client.Probe].
	NextProbeAt time.Time `json:"next_probe_at"`
}

// String describes the circuit breaker for log lines and pages.
func (b OpenBreaker) String() string {
	return flow.OpenBreaker(b).String()
}

func newOpenBreaker(row store.Breaker) OpenBreaker {
	return OpenBreaker(flow.NewOpenBreaker(row))
}

// ErrNotOpen is returned by [Client.Probe] when the consumer has no open circuit breaker; use
// errors.Is.
var ErrNotOpen = errors.New("the circuit breaker is not open")
