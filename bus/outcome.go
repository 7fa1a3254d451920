package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
)

// Outcome is what happens to a message after a run.
//
// Inside the consume chain an outcome may be provisional. A handler's plain error is [Errored]
// until the attempts layer makes it [Retried], or [Condemned] if no attempt is left. The poison
// layer makes Condemned [Poisoned].
type Outcome uint8

// The outcomes of a run.
const (
	// Done means that the handler succeeded; the message is removed.
	Done Outcome = iota
	// Discarded means that the handler gave up the message; it is removed and logged.
	Discarded
	// Retried means that the run failed and counts as an attempt; the message runs again after a
	// delay.
	Retried
	// Snoozed means that the message runs again after a delay; no attempt is counted.
	Snoozed
	// Condemned means that the message must not be retried: its error is [Permanent], or its last
	// attempt failed. The poison layer makes it Poisoned. In a chain without that layer the message
	// runs again after AttemptDelay, and the run counts as an attempt.
	Condemned
	// Poisoned means that the message moves to the poisoned messages.
	Poisoned
	// Released means that the message is returned unchanged, because the processor is stopping or
	// lost its lease.
	Released
	// Errored means that the error is not an OutcomeError: the attempts layer has not classified it
	// yet. In a chain without that layer the message runs again after AttemptDelay, and no attempt
	// is counted. Its text is "unclassified".
	Errored
)

// String returns the outcome as it appears in logs and metrics.
func (o Outcome) String() string {
	names := [...]string{"done", "discarded", "retried", "snoozed", "condemned", "poisoned", "released", "unclassified"}
	if int(o) < len(names) {
		return names[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// OutcomeError is an error that sets the message's outcome. Handlers return one through
// [Permanent], [RetryAfter], [Snooze] or [Discard]; the attempts layer turns other errors into one.
// Middleware reads it with [OutcomeOf].
type OutcomeError struct {
	Outcome Outcome
	// Delay is the wait before the next run, for Retried and Snoozed.
	Delay time.Duration
	// Reason is a short text on why a message is condemned or poisoned.
	Reason string
	// Err is what the handler returned; it may be nil.
	Err error
}

// Error implements error.
func (e *OutcomeError) Error() string {
	switch {
	case e.Err != nil:
		return errorlog.Text(e.Err)
	case e.Reason != "":
		return e.Reason
	}
	return e.Outcome.String()
}

// Unwrap returns the error behind the outcome.
func (e *OutcomeError) Unwrap() error { return e.Err }

// Permanent returns an error with the outcome [Condemned]: the message is poisoned without further
// attempts. A nil err stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &OutcomeError{Outcome: Condemned, Reason: "permanent error", Err: err}
}

// RetryAfter returns an error that counts the run as a failed attempt and schedules the next one
// after d, instead of the consumer's backoff. After the last of MaxAttempts the message is
// poisoned. A negative d counts as zero; a nil err stays nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &OutcomeError{Outcome: Retried, Delay: max(d, 0), Err: err}
}

// Snooze returns an error that schedules another run after d without counting an attempt. A
// negative d counts as zero.
func Snooze(d time.Duration) error {
	return &OutcomeError{Outcome: Snoozed, Delay: max(d, 0)}
}

// Discard returns an error that gives up the message: it is removed as if it had succeeded, and err
// is logged. A nil err stays nil, which is success.
func Discard(err error) error {
	if err == nil {
		return nil
	}
	return &OutcomeError{Outcome: Discarded, Err: err}
}

// OutcomeOf returns the outcome of a handler's error. Nil is Done. An error that wraps an
// OutcomeError has that outcome; any other error is Errored. Err of the result is err itself,
// which keeps its wrapping text, unless err is the OutcomeError. If a method of err panics (a
// typed nil, say), OutcomeOf substitutes an error that names the type.
func OutcomeOf(err error) OutcomeError {
	if err == nil {
		return OutcomeError{Outcome: Done}
	}
	if v, ok := err.(*OutcomeError); ok && v != nil && v.Outcome != Done {
		safe := *v
		safe.Err = errorlog.Sound(v.Err)
		return safe
	}
	err = errorlog.Sound(err)
	if v, ok := errors.AsType[*OutcomeError](err); ok && v != nil && v.Outcome != Done {
		wrapped := *v
		wrapped.Err = err
		return wrapped
	}
	return OutcomeError{Outcome: Errored, Err: err}
}

// Causes with which the processor cancels a handler's context; read them with [context.Cause].
var (
	// ErrTimeout is the cause when the consumer's timeout has passed. It wraps
	// context.DeadlineExceeded.
	ErrTimeout = fmt.Errorf("bus: consumer timeout: %w", context.DeadlineExceeded)
	// ErrStopping is the cause when the processor stops and the drain timeout has passed.
	ErrStopping = errors.New("bus: processor is stopping")
	// ErrCancelled is the cause when an operator stopped the run: see admin.Client.Stop.
	ErrCancelled = errors.New("bus: the message was cancelled")
	// ErrLeaseLost is the cause when the processor may no longer hold the message.
	ErrLeaseLost = errors.New("bus: lease on the message was lost")
)

// Errors with which the processor replaces or wraps a handler's own.
var (
	// ErrAbandoned means that the handler ignored its timeout. It may still run while the message
	// is retried.
	ErrAbandoned = errors.New("bus: handler did not return when its context ended, and was abandoned")
	// ErrNotCounted is joined to the error of a run that is repeated without counting an attempt.
	// This happens if the transaction of a transactional consumer loses a conflict or its connection,
	// or if outbox.Step cannot read or store its results; the tenth such run in a row counts, unless
	// its handler never began. It also happens if a message is left to a newer process: see
	// [Upcaster].
	ErrNotCounted = errors.New("bus: not counted as an attempt")
	// ErrExpired is in the error of a message that missed its start deadline: see
	// outbox.DeliverBy. Its consumer was not called.
	ErrExpired = errors.New("bus: too late to start")
)

// PanicError is a recovered panic of a handler, codec or upcaster. A handler's panic is a failed
// attempt, like an error.
type PanicError struct {
	// Value is what was passed to panic.
	Value any
	// Stack is the stack of the goroutine that panicked.
	Stack []byte
}

// Error implements error.
func (p *PanicError) Error() string { return fmt.Sprintf("bus: handler panicked: %v", p.Value) }

// Unwrap returns the panic value if it is an error. It returns nil for an OutcomeError: panicking
// with one is still a panic.
func (p *PanicError) Unwrap() error {
	if p == nil {
		return nil
	}
	err, _ := p.Value.(error)
	if _, isVerdict := errors.AsType[*OutcomeError](err); isVerdict {
		return nil
	}
	return err
}
