package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
)

// The default chain with a logger, a hook and a layer of the application.
func ExampleDefault() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: steady}))
	tenant := func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Message) error {
			fmt.Println("for tenant", m.Headers["tenant"])
			return next(ctx, m)
		}
	}
	chain := middleware.Default(middleware.Options{
		Logger:     logger,
		Middleware: []bus.Middleware{tenant},
		OnPoison: func(_ context.Context, m *bus.Message, reason string, err error) {
			fmt.Printf("%s: %s: %v\n", m.Consumer, reason, err)
		},
	})
	// The processor does the rest; this is one message at its last attempt.
	handler := bus.Compose(func(context.Context, *bus.Message) error { return errors.New("no answer") }, chain...)
	_ = handler(context.Background(), &bus.Message{
		Consumer: "send-invoice", PayloadType: "invoice.due", Attempt: 3, Headers: map[string]string{"tenant": "acme"},
		Config: &bus.ConsumerConfig{MaxAttempts: 3},
	})
	// Output:
	// for tenant acme
	// send-invoice: attempt 3 of 3 failed: no answer
	// level=ERROR msg="message poisoned" consumer=send-invoice payload_type=invoice.due attempt=3 outcome=poisoned reason="attempt 3 of 3 failed" error="no answer"
}

// steady drops from a line what differs from run to run.
func steady(_ []string, a slog.Attr) slog.Attr {
	switch a.Key {
	case slog.TimeKey, "duration", "message_id":
		return slog.Attr{}
	}
	return a
}

// A chain without Default: it recovers panics, and retries every minute without end.
func ExampleAttempts() {
	handler := bus.Compose(func(context.Context, *bus.Message) error { panic("no answer") },
		middleware.Attempts(middleware.Constant(time.Minute)), middleware.Recover())

	verdict := bus.OutcomeOf(handler(context.Background(), &bus.Message{Attempt: 17}))
	fmt.Println(verdict.Outcome, "in", verdict.Delay)
	fmt.Println(verdict.Err)
	// Output:
	// retried in 1m0s
	// bus: handler panicked: no answer
}

func ExampleTimeout() {
	handler := middleware.Timeout()(func(ctx context.Context, _ *bus.Message) error {
		<-ctx.Done() // as a database call would
		return fmt.Errorf("charge card: %w", ctx.Err())
	})
	err := handler(context.Background(), &bus.Message{Config: &bus.ConsumerConfig{Timeout: time.Millisecond}})
	fmt.Println(err)
	// Output: consumer timeout 1ms: charge card: context deadline exceeded
}

func ExampleExponential() {
	wait := middleware.Exponential(10 * time.Second)
	for _, attempt := range []int{1, 2, 3, 100} {
		d := wait(attempt) // 10s, 20s, 40s, ... each ±50 %
		fmt.Println(attempt, d <= 15*time.Minute)
	}
	// Output:
	// 1 true
	// 2 true
	// 3 true
	// 100 true
}

func ExampleConstant() {
	registered := bus.Consume("send-invoice", func(context.Context, InvoiceDue) error { return nil },
		bus.Backoff(middleware.Constant(30*time.Second)))
	fmt.Println(registered.Config().Backoff(1), registered.Config().Backoff(5))
	// Output: 30s 30s
}

// InvoiceDue is a payload.
type InvoiceDue struct{ Number int }

// PayloadType is the name it is stored under.
func (InvoiceDue) PayloadType() string { return "invoice.due" }

// The consumer send-mail skips replayed messages. Others run them.
func ExampleSkipOnReplay() {
	handler := middleware.SkipOnReplay("send-mail")(func(_ context.Context, m *bus.Message) error {
		fmt.Println(m.Consumer, "runs, replay:", m.Event.Replay)
		return nil
	})
	for _, m := range []*bus.Message{
		{Consumer: "send-mail", Event: &bus.Event{}}, {Consumer: "send-mail", Event: &bus.Event{Replay: true}},
		{Consumer: "count", Event: &bus.Event{Replay: true}},
	} {
		if err := handler(context.Background(), m); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// send-mail runs, replay: false
	// count runs, replay: true
}
