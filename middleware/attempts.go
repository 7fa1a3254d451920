package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Attempts applies the retry policy: it turns an error into an outcome error. The message is
// retried after the consumer's backoff. After MaxAttempts failed runs the outcome is bus.Condemned,
// for which [Poison] poisons the message. A [*backoff.PermanentError]
// (github.com/cenkalti/backoff/v4) has that outcome at once, like bus.Permanent. Consumers without
// a backoff use the fallback, which is called concurrently; nil means [Exponential] with the
// consumer's AttemptDelay.
//
// Without this layer, an error is retried after AttemptDelay and no attempt is counted.
func Attempts(fallback func(attempt int) time.Duration) bus.Middleware {
	return func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Message) error {
			err := next(ctx, m)
			if err == nil {
				return nil
			}
			return judge(err, m, fallback)
		}
	}
}

func judge(err error, m *bus.Message, fallback func(attempt int) time.Duration) error {
	v := bus.OutcomeOf(err)
	var permanent *backoff.PermanentError
	switch {
	case v.Outcome == bus.Errored && errors.As(v.Err, &permanent):
		return bus.Permanent(v.Err)
	case v.Outcome != bus.Errored && v.Outcome != bus.Retried:
		return err
	}
	config := bus.ConsumerConfig{}
	if m.Config != nil {
		config = *m.Config
	}
	if config.MaxAttempts > 0 && m.Attempt >= config.MaxAttempts {
		reason := fmt.Sprintf("attempt %d of %d failed", m.Attempt, config.MaxAttempts)
		return &bus.OutcomeError{Outcome: bus.Condemned, Reason: reason, Err: v.Err}
	}
	if v.Outcome == bus.Retried { // the handler chose the delay
		return err
	}
	wait := config.Backoff
	if wait == nil {
		wait = fallback
	}
	if wait == nil {
		wait = Exponential(config.AttemptDelay)
	}
	return &bus.OutcomeError{Outcome: bus.Retried, Delay: delay(wait, m.Attempt, config.AttemptDelay), Err: v.Err}
}

// delay calls the backoff, which may be the user's. If it panics, the attempt must still be
// counted.
func delay(wait func(attempt int) time.Duration, attempt int, fallback time.Duration) (d time.Duration) {
	defer func() {
		if recover() != nil {
			d = fallback
		}
	}()
	return max(wait(attempt), 0)
}
