package engine

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// breaker is this process's part of a consumer's circuit breaker. All processes trip and reset its
// circuit together. It counts the outcomes of runs since the last read. The circuit opens where all
// outcomes are counted: store.FlowStore.CountRuns.
type breaker struct {
	*flow.Circuit
	consumer string
	config   bus.CircuitBreakerConfig

	mu           sync.Mutex
	done, failed int64
	wasDone      int64            // successful runs of the half of the window before
	halfSince    time.Time        // since when done is counted, while nothing is written
	troubled     bool             // runs have failed lately in some process
	last         string           // the last error of this process
	open         flow.OpenBreaker // the state when last read, while open
	probeOf      int              // the number of the opening in which this process may probe
	over         bool             // a probe succeeded: the circuit breaker is to be closed
	missed       bool             // a probe failed, which is not logged yet
}

// breakerOf returns a consumer's circuit breaker, which is then its circuit, or nil if it has none.
func breakerOf(consumer string, settings bus.ConsumerConfig, circuit *flow.Circuit) (*breaker, error) {
	switch {
	case settings.Breaker == nil:
		return nil, nil
	case circuit != nil:
		return nil, fmt.Errorf("outbox: consumer %q: CircuitBreaker and WithCircuit do not go together", consumer)
	}
	return &breaker{Circuit: new(flow.Circuit), consumer: consumer, config: *settings.Breaker}, nil
}

// count counts the outcome of a run, unless the circuit breaker has opened since the run began. A
// successful probe ends the opening. It returns false for an outcome that breakers ignore.
func (b *breaker) count(err error, probe bool) bool {
	outcome := bus.OutcomeOf(err).Outcome
	done, failed := outcome == bus.Done, outcome == bus.Errored || outcome == bus.Retried
	if _, _, open := b.Tripped(); open && !probe {
		return done || failed
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case done && probe:
		b.over = true
	case done:
		b.done++
	case failed && probe:
		b.missed = true
	case failed:
		b.failed, b.last = b.failed+1, errorlog.Text(err)
	}
	return done || failed
}

// take returns the counts to write and resets them. While nothing fails, nothing is written: then
// successful runs are kept for about a window, and are written once others fail.
func (b *breaker) take(now time.Time) (done, failed int64, over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	failed, over = b.failed, b.over
	b.failed, b.over = 0, false
	switch {
	case failed > 0 || b.troubled:
		done = b.done + b.wasDone
		b.done, b.wasDone = 0, 0
	case now.Sub(b.halfSince) >= b.config.Window/2:
		b.wasDone, b.done, b.halfSince = b.done, 0, now
	}
	return done, failed, over
}

// keep remembers a close that failed, for the next look.
func (b *breaker) keep(over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = b.over || over
}

// apply applies the state of the circuit breaker in the database.
func (b *breaker) apply(row store.Breaker, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.troubled = row.Troubled()
	_, _, open := b.Tripped()
	switch {
	case b.over: // it is about to be closed
	case !row.Open():
		b.missed = false // another process has closed it
		if open {
			b.Reset()
		}
	case open && row.Opened == b.probeOf: // numbers begin again with each opening: it may be an earlier one's
		b.open = flow.NewOpenBreaker(row)
		b.Explain(b.reasonLocked())
	default:
		b.open = flow.NewOpenBreaker(row)
		b.Hold(b.reasonLocked(), now.Add(flow.Never)) // unless it wins the right to probe
	}
}

// takeMissed reports whether a probe has failed since the last call.
func (b *breaker) takeMissed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	missed := b.missed
	b.missed = false
	return missed
}

// reasonLocked returns why the breaker is open, with this process's last error if it had one.
func (b *breaker) reasonLocked() error {
	if b.last == "" {
		return errors.New(b.open.String())
	}
	return fmt.Errorf("%s; last error in this process: %s", b.open, b.last)
}

// mayProbe lets this process probe in the given opening.
func (b *breaker) mayProbe(opened int, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probeOf = opened
	b.Hold(b.reasonLocked(), now)
}
