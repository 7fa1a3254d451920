package schedule

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Misfire is the policy for fire times that passed while no processor ran.
type Misfire uint8

const (
	FireOnce Misfire = iota // fires once for all missed fire times
	Skip                    // skips the missed fire times
)

// ProcessorConfig configures a [Processor]. Zero fields mean their defaults.
type ProcessorConfig struct {
	// Concurrency is the number of polling goroutines. On SQLite more than 1 is an error. Defaults
	// to 1.
	Concurrency int
	// PollInterval is the longest wait between polls. The wait ends early for the next fire time
	// and for changes by this process. A schedule that another process has just written may fire
	// late by this much. Defaults to 5 s.
	PollInterval time.Duration
	// Misfire is the policy for a schedule that has missed fire times: when a processor finds it due,
	// the fire time after the due one has passed as well. Defaults to [FireOnce].
	Misfire Misfire
	// StartTimeout is how long Run waits at its start for an unreachable database. Defaults to 0:
	// Run returns the error at once.
	StartTimeout time.Duration
	// Logger receives the processor's log lines. Defaults to slog.Default().
	Logger *slog.Logger
	// Telemetry wraps every fire: its next function fires the schedules of the batch. For each
	// message, AvailableAt is the fire time and CreatedAt is now, both on the database's clock.
	// Defaults to none.
	Telemetry bus.ProduceMiddleware
}

// validate reports every field that is out of range. Defaults are already set.
func (c ProcessorConfig) validate(rowLocks bool) error {
	var errs []error
	if c.Concurrency < 1 {
		errs = append(errs, fmt.Errorf("schedule: ProcessorConfig.Concurrency %d: 1 or more is allowed", c.Concurrency))
	}
	if c.Concurrency > 1 && !rowLocks {
		errs = append(errs,
			fmt.Errorf("schedule: ProcessorConfig.Concurrency %d: 1 is allowed on SQLite, which has one writer at a time", c.Concurrency))
	}
	if c.PollInterval < 0 {
		errs = append(errs, fmt.Errorf("schedule: ProcessorConfig.PollInterval %s: 0 or more is allowed", c.PollInterval))
	}
	if c.StartTimeout < 0 {
		errs = append(errs, fmt.Errorf("schedule: ProcessorConfig.StartTimeout %s: 0 or more is allowed", c.StartTimeout))
	}
	return errors.Join(errs...)
}
