package middleware_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
)

func TestAttemptsJudgesErrors(t *testing.T) {
	t.Parallel()
	wrap := func(err error) error { return fmt.Errorf("send invoice: %w", err) }
	tests := []struct {
		name    string
		attempt int
		err     error
		outcome bus.Outcome
		delay   time.Duration // by a backoff of attempt seconds
		reason  string
		text    string
	}{
		{"the first attempt is retried", 1, errMail, bus.Retried, time.Second, "", "mail server is down"},
		{"the attempt before the last is retried", 4, errMail, bus.Retried, 4 * time.Second, "", "mail server is down"},
		{"the last attempt is condemned", 5, errMail, bus.Condemned, 0, "attempt 5 of 5 failed", "mail server is down"},
		{"an attempt beyond the last is condemned", 7, errMail, bus.Condemned, 0, "attempt 7 of 5 failed", "mail server is down"},
		{"a wrapped error keeps its text", 1, wrap(errMail), bus.Retried, time.Second, "", "send invoice: mail server is down"},
		{"a wrapped error keeps its text when condemned", 5, wrap(errMail), bus.Condemned, 0, "attempt 5 of 5 failed",
			"send invoice: mail server is down"},
		{"a delay of one's own wins over the backoff", 3, bus.RetryAfter(time.Hour, errMail), bus.Retried, time.Hour, "", "mail server is down"},
		{"no delay of one's own wins over the backoff", 3, bus.RetryAfter(0, errMail), bus.Retried, 0, "", "mail server is down"},
		{"a wrapped delay of one's own wins over the backoff", 3, wrap(bus.RetryAfter(time.Hour, errMail)), bus.Retried, time.Hour, "",
			"send invoice: mail server is down"},
		{"a delay of one's own does not save the last attempt", 5, bus.RetryAfter(time.Hour, errMail), bus.Condemned, 0,
			"attempt 5 of 5 failed", "mail server is down"},
		{"a wrapped delay does not save the last attempt", 5, wrap(bus.RetryAfter(time.Hour, errMail)), bus.Condemned, 0,
			"attempt 5 of 5 failed", "send invoice: mail server is down"},
		{"a permanent error is condemned at once", 1, bus.Permanent(errMail), bus.Condemned, 0, "permanent error", "mail server is down"},
		{"a wrapped permanent error is condemned at once", 1, wrap(bus.Permanent(errMail)), bus.Condemned, 0, "permanent error",
			"send invoice: mail server is down"},
		{"a permanent error of the last attempt keeps its reason", 5, bus.Permanent(errMail), bus.Condemned, 0, "permanent error",
			"mail server is down"},
		{"a permanent error of backoff is condemned at once", 1, backoff.Permanent(errMail), bus.Condemned, 0, "permanent error",
			"mail server is down"},
		{"a wrapped permanent error of backoff is condemned at once", 1, wrap(backoff.Permanent(errMail)), bus.Condemned, 0,
			"permanent error", "send invoice: mail server is down"},
		{"a joined permanent error of backoff is condemned at once", 1, errors.Join(errMail, backoff.Permanent(errMail)), bus.Condemned,
			0, "permanent error", "mail server is down\nmail server is down"},
		{"a delay of one's own wins over backoff's permanent error", 1, bus.RetryAfter(time.Hour, backoff.Permanent(errMail)),
			bus.Retried, time.Hour, "", "mail server is down"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			linear := func(attempt int) time.Duration { return time.Duration(attempt) * time.Second }
			got := run(t, delivery(test.attempt), returns(test.err), middleware.Attempts(linear))
			if got.Outcome != test.outcome || got.Delay != test.delay || got.Reason != test.reason {
				t.Errorf("got %s, delay %s, reason %q, want %s, %s, %q", got.Outcome, got.Delay, got.Reason, test.outcome, test.delay, test.reason)
			}
			if got.Err == nil || got.Err.Error() != test.text || !errors.Is(got.Err, errMail) {
				t.Errorf("got error %v, want %q, wrapping the handler's", got.Err, test.text)
			}
		})
	}
}

func TestAttemptsPassesOtherOutcomesThrough(t *testing.T) {
	t.Parallel()
	verdicts := map[string]error{
		"success":            nil,
		"a snooze":           bus.Snooze(time.Minute),
		"a wrapped snooze":   fmt.Errorf("at night: %w", bus.Snooze(time.Minute)),
		"a discard":          bus.Discard(errMail),
		"a release":          &bus.OutcomeError{Outcome: bus.Released, Err: bus.ErrLeaseLost},
		"a poisoned message": &bus.OutcomeError{Outcome: bus.Poisoned, Reason: "seen enough", Err: errMail},
		"a permanent error":  bus.Permanent(errMail),
	}
	for name, err := range verdicts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, attempt := range []int{1, 5, 6} {
				handler := middleware.Attempts(nil)(returns(err))
				if got := handler(t.Context(), delivery(attempt)); got != err {
					t.Errorf("attempt %d: got %v, want the very error the handler returned, %v", attempt, got, err)
				}
			}
		})
	}
}

func TestAttemptsChoosesTheBackoff(t *testing.T) {
	t.Parallel()
	own := func(attempt int) time.Duration { return time.Duration(attempt) * time.Minute }
	fallback := func(attempt int) time.Duration { return time.Duration(attempt) * time.Hour }
	negative := func(int) time.Duration { return -time.Hour }
	tests := []struct {
		name     string
		config   *bus.ConsumerConfig
		fallback func(attempt int) time.Duration
		min, max time.Duration // at attempt 3
	}{
		{"the consumer's own comes first", &bus.ConsumerConfig{Backoff: own, AttemptDelay: time.Second}, fallback, 3 * time.Minute,
			3 * time.Minute},
		{"then the fallback", &bus.ConsumerConfig{AttemptDelay: time.Second}, fallback, 3 * time.Hour, 3 * time.Hour},
		{"then AttemptDelay, doubled and spread", &bus.ConsumerConfig{AttemptDelay: time.Second}, nil, 2 * time.Second, 6*time.Second + 1},
		{"no settings leave the fallback", nil, fallback, 3 * time.Hour, 3 * time.Hour},
		{"no settings at all mean at once", nil, nil, 0, 0},
		{"a negative wait of the consumer's own counts as zero", &bus.ConsumerConfig{Backoff: negative}, fallback, 0, 0},
		{"a negative wait of the fallback counts as zero", &bus.ConsumerConfig{}, negative, 0, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := &bus.Message{Attempt: 3, Config: test.config}
			got := run(t, m, returns(errMail), middleware.Attempts(test.fallback))
			if got.Outcome != bus.Retried || got.Delay < test.min || got.Delay > test.max {
				t.Errorf("got %s after %s, want %s after %s to %s", got.Outcome, got.Delay, bus.Retried, test.min, test.max)
			}
		})
	}
}

func TestAttemptsWithoutALimitRetriesForever(t *testing.T) {
	t.Parallel()
	for _, config := range []*bus.ConsumerConfig{nil, {}} {
		m := &bus.Message{Attempt: 1 << 20, Config: config}
		if got := run(t, m, returns(errMail), middleware.Attempts(middleware.Constant(0))).Outcome; got != bus.Retried {
			t.Errorf("config %v: got %s, want %s", config, got, bus.Retried)
		}
	}
}

func TestAttemptsOfOne(t *testing.T) {
	t.Parallel()
	m := &bus.Message{Attempt: 1, Config: &bus.ConsumerConfig{MaxAttempts: 1}}
	if got := run(t, m, returns(errMail), middleware.Attempts(nil)); got.Outcome != bus.Condemned || got.Reason != "attempt 1 of 1 failed" {
		t.Errorf("got %s, reason %q, want the only attempt to be the last", got.Outcome, got.Reason)
	}
}
