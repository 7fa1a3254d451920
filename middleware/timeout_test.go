package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
)

func TestTimeoutSetsTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var inside context.Context
		err := middleware.Timeout()(func(ctx context.Context, _ *bus.Message) error {
			inside = ctx
			if deadline, ok := ctx.Deadline(); !ok || !deadline.Equal(start.Add(10*time.Second)) {
				t.Errorf("got deadline %v, %t, want 10s from %v", deadline, ok, start)
			}
			<-ctx.Done()
			if got := time.Since(start); got != 10*time.Second {
				t.Errorf("done after %s, want 10s", got)
			}
			if cause := context.Cause(ctx); cause != bus.ErrTimeout || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Errorf("got %v, cause %v, want %v, %v", ctx.Err(), cause, context.DeadlineExceeded, bus.ErrTimeout)
			}
			return nil
		})(t.Context(), delivery(1))
		if err != nil {
			t.Errorf("a handler that succeeds too late: got %v, want its success", err)
		}
		if inside.Err() == nil {
			t.Error("the context outlives the handler, want it cancelled")
		}
	})
}

func TestTimeoutCancelsTheContextOfAQuickHandler(t *testing.T) {
	t.Parallel()
	var inside context.Context
	quick := func(ctx context.Context, _ *bus.Message) error { inside = ctx; return ctx.Err() }
	if err := middleware.Timeout()(quick)(t.Context(), delivery(1)); err != nil {
		t.Errorf("got %v, want no error", err)
	}
	if inside.Err() != context.Canceled {
		t.Errorf("afterwards: got %v, want %v, so that its timer is released", inside.Err(), context.Canceled)
	}
}

func TestTimeoutAddsTheLimitToTheError(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		// after is run when the deadline has passed.
		after func(ctx context.Context) error
		want  string
		is    error
	}{
		{"the context's error", func(ctx context.Context) error { return ctx.Err() },
			"consumer timeout 10s: context deadline exceeded", context.DeadlineExceeded},
		{"a wrapped context error", func(ctx context.Context) error { return fmt.Errorf("call bank: %w", ctx.Err()) },
			"consumer timeout 10s: call bank: context deadline exceeded", context.DeadlineExceeded},
		{"the context's cause says it already", func(ctx context.Context) error { return context.Cause(ctx) },
			bus.ErrTimeout.Error(), bus.ErrTimeout},
		{"an error that has nothing to do with it", func(context.Context) error { return errMail },
			"mail server is down", errMail},
		{"success", func(context.Context) error { return nil }, "<nil>", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				err := middleware.Timeout()(func(ctx context.Context, _ *bus.Message) error {
					<-ctx.Done()
					return test.after(ctx)
				})(t.Context(), delivery(1))
				if got := fmt.Sprint(err); got != test.want || !errors.Is(err, test.is) {
					t.Errorf("got %q, want %q, wrapping %v", got, test.want, test.is)
				}
			})
		})
	}
}

func TestTimeoutLeavesOutcomesIntact(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		err  error
		want bus.OutcomeError
	}{
		{"a retry", bus.RetryAfter(time.Hour, context.DeadlineExceeded), bus.OutcomeError{Outcome: bus.Retried, Delay: time.Hour}},
		{"a permanent error", bus.Permanent(context.DeadlineExceeded), bus.OutcomeError{Outcome: bus.Condemned, Reason: "permanent error"}},
		{"a discard", bus.Discard(context.DeadlineExceeded), bus.OutcomeError{Outcome: bus.Discarded}},
		{"a snooze", bus.Snooze(time.Minute), bus.OutcomeError{Outcome: bus.Snoozed, Delay: time.Minute}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				late := func(ctx context.Context, _ *bus.Message) error { <-ctx.Done(); return test.err }
				got := run(t, delivery(1), late, middleware.Timeout())
				if got.Outcome != test.want.Outcome || got.Delay != test.want.Delay || got.Reason != test.want.Reason {
					t.Errorf("got %s, delay %s, reason %q, want %s, %s, %q",
						got.Outcome, got.Delay, got.Reason, test.want.Outcome, test.want.Delay, test.want.Reason)
				}
			})
		})
	}
}

func TestTimeoutIsNotBlamedForOtherDeadlines(t *testing.T) {
	t.Parallel()
	waitBriefly := func(ctx context.Context, _ *bus.Message) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	wait := func(ctx context.Context, _ *bus.Message) error { <-ctx.Done(); return ctx.Err() }
	tests := []struct {
		name    string
		outer   time.Duration // deadline around the chain
		handler bus.Handler
	}{
		{"a shorter deadline of the handler's own", time.Hour, waitBriefly},
		{"a shorter deadline around the chain", time.Second, wait},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.outer)
				defer cancel()
				if got := middleware.Timeout()(test.handler)(ctx, delivery(1)); got != context.DeadlineExceeded {
					t.Errorf("got %v, want %v as it is", got, context.DeadlineExceeded)
				}
			})
		})
	}
}

func TestTimeoutKeepsTheCauseOfACancellation(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{bus.ErrStopping, bus.ErrLeaseLost} {
		ctx, cancel := context.WithCancelCause(t.Context())
		err := middleware.Timeout()(func(ctx context.Context, _ *bus.Message) error {
			cancel(cause)
			<-ctx.Done()
			return context.Cause(ctx)
		})(ctx, delivery(1))
		if err != cause {
			t.Errorf("got %v, want %v", err, cause)
		}
	}
}

func TestTimeoutWithoutALimit(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]*bus.ConsumerConfig{"no settings": nil, "no timeout": {}, "a negative timeout": {Timeout: -1}} {
		ctx := t.Context()
		err := middleware.Timeout()(func(inside context.Context, _ *bus.Message) error {
			if inside != ctx {
				t.Errorf("%s: got another context, want the one given", name)
			}
			return errMail
		})(ctx, &bus.Message{Config: config})
		if err != errMail {
			t.Errorf("%s: got %v, want %v", name, err, errMail)
		}
	}
}
