package schedule

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Misfire is what a schedule does whose fire times have passed while no processor ran.
type Misfire uint8

const (
	FireOnce Misfire = iota // it fires once, however many fire times were missed
	Skip                    // it does not fire for them, and goes on as scheduled
)

// ProcessorConfig sets up a [Processor]. The zero value works: every zero field
// stands for its default.
type ProcessorConfig struct {
	// Concurrency is the number of loops. Defaults to 1; on a
	// database without row locks more is an error.
	Concurrency int
	// PollInterval is the longest wait between polls; the next fire time
	// cuts it short, and so does a change of a schedule by this process. It is
	// how late a schedule may fire that another process has just written. 0
	// stands for the default, 5 s; there is no polling without a wait.
	PollInterval time.Duration
	// Misfire is what a schedule does that is found due only after the fire time that follows. Defaults to
	// [FireOnce].
	Misfire Misfire
	// StartTimeout is how long Run waits at its start for a database that does not
	// answer. Defaults to 0, which means that it returns the error at once.
	StartTimeout time.Duration
	// Logger receives what the processor has to say. Defaults to slog.Default().
	Logger *slog.Logger
	// Telemetry wraps every fire: the produce function that it is given fires the schedules of the
	// batch. Of each message AvailableAt is the instant it fires for, and CreatedAt is now, both on
	// the database's clock. Defaults to none.
	Telemetry bus.ProduceMiddleware
}

// validate reports every field that is out of range; defaults are filled in.
func (c ProcessorConfig) validate(rowLocks bool) error {
	var errs []error
	if c.Concurrency < 1 {
		errs = append(errs, fmt.Errorf("schedule: ProcessorConfig.Concurrency %d: 1 or more is allowed", c.Concurrency))
	}
	if c.Concurrency > 1 && !rowLocks {
		errs = append(errs, fmt.Errorf("schedule: ProcessorConfig.Concurrency %d: 1 is allowed on SQLite, which has one writer at a time", c.Concurrency))
	}
	if c.PollInterval < 0 {
		errs = append(errs, fmt.Errorf("schedule: ProcessorConfig.PollInterval %s: 0 or more is allowed", c.PollInterval))
	}
	if c.StartTimeout < 0 {
		errs = append(errs, fmt.Errorf("schedule: ProcessorConfig.StartTimeout %s: 0 or more is allowed", c.StartTimeout))
	}
	return errors.Join(errs...)
}
