package middleware

import (
	"log/slog"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Options configures [Default]. The zero value works.
type Options struct {
	// Logger receives one line per run. Defaults to slog.Default().
	Logger *slog.Logger
	// Telemetry is the outermost layer. It sees every run and its final outcome. Defaults to none.
	Telemetry bus.Middleware
	// OuterMiddleware lists further layers that see every run and its final outcome, retried or
	// poisoned: read it with bus.OutcomeOf. They run outside all others but Telemetry, first
	// outermost. Their panics are not recovered by a layer, no timeout applies to them, and their
	// result is final. Defaults to none.
	OuterMiddleware []bus.Middleware
	// Backoff is the wait between failed runs, for consumers without their own. Defaults to
	// Exponential with the consumer's AttemptDelay.
	Backoff func(attempt int) time.Duration
	// OnPoison is called before a message is poisoned. Defaults to none.
	OnPoison OnPoison
	// Middleware lists the application's layers, first outermost. They run inside all others,
	// directly around the consumer. Defaults to none.
	Middleware []bus.Middleware
}

// Default returns the standard consume chain, outermost first: telemetry, OuterMiddleware, log,
// poison, attempts, recover, timeout, and the application's Middleware.
func Default(o Options) []bus.Middleware {
	var chain []bus.Middleware
	if o.Telemetry != nil {
		chain = append(chain, o.Telemetry)
	}
	chain = append(chain, o.OuterMiddleware...)
	chain = append(chain, Log(o.Logger), Poison(o.OnPoison), Attempts(o.Backoff), Recover(), Timeout())
	return append(chain, o.Middleware...)
}
