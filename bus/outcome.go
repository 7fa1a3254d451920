package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
)

// Outcome is what becomes of a message after a run.
type Outcome uint8

// The outcomes of a run.
const (
	// Done: the handler succeeded and the message is removed.
	Done Outcome = iota
	// Discarded: the handler gave the message up; it is removed and logged.
	Discarded
	// Retried: the run failed, counts as an attempt, and is repeated after a delay.
	Retried
	// Snoozed: the message runs again after a delay; nothing is counted.
	Snoozed
	// Condemned: the message shall be poisoned. The poison middleware carries
	// that out; without it the message is retried.
	Condemned
	// Poisoned: the message moves to the poisoned messages.
	Poisoned
	// Released: the message is given back untouched, because the processor
	// stops or lost its lease.
	Released
	// Errored: an error that no layer turned into an outcome error. The message runs again after
	// AttemptDelay; nothing is counted.
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

// OutcomeError is an error that says what becomes of the message. Handlers return
// one through [Permanent], [RetryAfter], [Snooze] or [Discard]; the attempts
// and poison middleware turn other errors into one.
type OutcomeError struct {
	Outcome Outcome
	// Delay is the wait before the next run, for Retried and Snoozed.
	Delay time.Duration
	// Reason says in a few words why a message is condemned or poisoned.
	Reason string
	// Err is what the handler returned; it may be nil.
	Err error
}

// Error implements error.
func (v *OutcomeError) Error() string {
	switch {
	case v.Err != nil:
		return errorlog.Text(v.Err)
	case v.Reason != "":
		return v.Reason
	}
	return v.Outcome.String()
}

// Unwrap returns the error behind the outcome.
func (v *OutcomeError) Unwrap() error { return v.Err }

// Permanent marks err as one that no retry can cure: the message is poisoned
// now. A nil err stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &OutcomeError{Outcome: Condemned, Reason: "permanent error", Err: err}
}

// RetryAfter counts the run as a failed attempt and asks for the next one after
// d instead of the consumer's backoff. A negative d counts as zero; a nil err
// stays nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &OutcomeError{Outcome: Retried, Delay: max(d, 0), Err: err}
}

// Snooze asks for another run after d without counting an attempt. A negative d
// counts as zero.
func Snooze(d time.Duration) error {
	return &OutcomeError{Outcome: Snoozed, Delay: max(d, 0)}
}

// Discard gives the message up: it is removed as if it had succeeded, and err
// is logged. A nil err stays nil, which is success.
func Discard(err error) error {
	if err == nil {
		return nil
	}
	return &OutcomeError{Outcome: Discarded, Err: err}
}

// OutcomeOf returns the outcome of what a handler returned. Nil is Done. An error that wraps an
// OutcomeError has that outcome; any other error is Errored. Err of the result is err itself, so
// that no wrapping text is lost, unless err is the OutcomeError. If a method of err panics (a typed
// nil, say), OutcomeOf substitutes an error that names the type.
func OutcomeOf(err error) OutcomeError {
	if err == nil {
		return OutcomeError{Outcome: Done}
	}
	if v, ok := err.(*OutcomeError); ok && v != nil && v.Outcome != Done {
		safe := *v
		safe.Err = sound(v.Err)
		return safe
	}
	err = sound(err)
	if v, ok := errors.AsType[*OutcomeError](err); ok && v != nil && v.Outcome != Done {
		wrapped := *v
		wrapped.Err = err
		return wrapped
	}
	return OutcomeError{Outcome: Errored, Err: err}
}

// unsoundError stands for an error that cannot be asked anything.
type unsoundError struct{ of string }

// Error implements error.
func (e *unsoundError) Error() string {
	return "bus: an error of type " + e.of + " panics when it is asked: is it a nil pointer?"
}

var errNobody = errors.New("bus: no error given")

// sound returns the error, or a stand-in for one of which a method panics. Walking
// through it once calls all that errors.Is and errors.As ever call.
func sound(err error) (safe error) {
	if err == nil {
		return nil
	}
	defer func() {
		if recover() != nil {
			safe = &unsoundError{of: fmt.Sprintf("%T", err)}
		}
	}()
	_ = errors.Is(err, errNobody)
	_, _ = errors.AsType[*unsoundError](err)
	return err
}

// Causes with which the processor cancels a handler's context; read them with
// [context.Cause].
var (
	// ErrTimeout is the cause when the consumer's timeout has passed. It wraps
	// context.DeadlineExceeded.
	ErrTimeout = fmt.Errorf("bus: consumer timeout: %w", context.DeadlineExceeded)
	// ErrStopping is the cause when the processor stops and the drain timeout
	// has passed.
	ErrStopping = errors.New("bus: processor is stopping")
	// ErrCancelled is the cause when the end of the run was requested: see admin.Client.Stop.
	ErrCancelled = errors.New("bus: the message was cancelled")
	// ErrLeaseLost is the cause when the processor can no longer be sure that
	// it holds the message.
	ErrLeaseLost = errors.New("bus: lease on the message was lost")
)

// Errors the processor puts in place of a handler's own.
var (
	// ErrAbandoned: the handler ignored its timeout. It may
	// still be running while the message is retried.
	ErrAbandoned = errors.New("bus: handler did not return when its context ended, and was abandoned")
	// ErrNotCounted is in the error of a run that a transactional consumer shall
	// repeat without having failed: its transaction lost a conflict or its
	// connection. After ten in a row the next error counts.
	ErrNotCounted = errors.New("bus: not counted as an attempt")
	// ErrExpired is in the error of a message that was to start by a deadline, see
	// outbox.DeliverBy, and could not. Its consumer was not called.
	ErrExpired = errors.New("bus: too late to start")
)

// PanicError is a panic turned into an error.
type PanicError struct {
	// Value is what was passed to panic.
	Value any
	// Stack is the stack of the goroutine that panicked.
	Stack []byte
}

// Error implements error.
func (p *PanicError) Error() string { return fmt.Sprintf("bus: handler panicked: %v", p.Value) }

// Unwrap returns the panic value if it is an error. It returns nil for an OutcomeError: to panic
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
