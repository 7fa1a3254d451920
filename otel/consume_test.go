package otel_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

func TestConsumeChangesNoResult(t *testing.T) {
	t.Parallel()
	plain := errors.New("no luck")
	for _, want := range []error{nil, plain, bus.Permanent(plain), bus.Snooze(1), bus.Discard(plain), &bus.OutcomeError{Outcome: 200},
		(*odd)(nil)} {
		handler := newTelemetry(t, nil).Consume()(func(context.Context, *bus.Message) error { return want })
		if got := handler(t.Context(), &bus.Message{PayloadType: "order.placed", Attempt: 1000}); got != want {
			t.Errorf("result: got %v, want the handler's own", got)
		}
	}
}

// odd is an error whose methods panic on a nil pointer.
type odd struct{ err error }

func (o *odd) Error() string     { return o.err.Error() }
func (o *odd) ErrorType() string { return o.err.Error() }

func TestPanicGoesOnUntouched(t *testing.T) {
	t.Parallel()
	telemetry := newTelemetry(t, nil)
	value := func(run func()) (value any) {
		defer func() { value = recover() }()
		run()
		return nil
	}
	got := value(func() {
		_ = telemetry.Consume()(func(context.Context, *bus.Message) error { panic("consume") })(t.Context(), &bus.Message{})
	})
	if got != "consume" {
		t.Errorf("consume chain: recovered %v, want what was panicked with", got)
	}
	got = value(func() {
		batch := []*bus.Message{{PayloadType: "order.placed"}}
		_ = telemetry.Produce()(func(context.Context, *bus.Batch) error { panic("produce") })(t.Context(), &bus.Batch{Messages: batch})
	})
	if got != "produce" {
		t.Errorf("produce chain: recovered %v, want what was panicked with", got)
	}
}

func TestEmptyBatchGoesOn(t *testing.T) {
	t.Parallel()
	telemetry := newTelemetry(t, nil)
	for name, layer := range map[string]bus.ProduceMiddleware{"produce": telemetry.Produce(), "fire": telemetry.Fire()} {
		calls := 0
		err := layer(func(context.Context, *bus.Batch) error { calls++; return nil })(t.Context(), &bus.Batch{})
		if err != nil || calls != 1 {
			t.Errorf("%s: got %v and %d calls, want one call", name, err, calls)
		}
	}
}

// TestWithoutSDKContextsPassThrough is an application that hands trace contexts
// on without making spans itself.
func TestWithoutSDKContextsPassThrough(t *testing.T) {
	t.Parallel()
	telemetry := newTelemetry(t, propagation.TraceContext{})
	stored := produced(t, inSpan(t, traceparent, ""), propagation.TraceContext{}, nil)[0]
	var seen trace.SpanContext
	handler := telemetry.Consume()(func(ctx context.Context, _ *bus.Message) error {
		seen = trace.SpanContextFromContext(ctx)
		return nil
	})
	if err := handler(t.Context(), &bus.Message{PayloadType: "order.placed", Attempt: 3, Headers: stored}); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("00-%s-%s-%s", seen.TraceID(), seen.SpanID(), seen.TraceFlags()); got != traceparent {
		t.Errorf("in the handler: got %s, want the producer's %s", got, traceparent)
	}
}

// TestFireHidesTheSpanAroundRun fires schedules in a context with a span, as a
// Run that was called in one does.
func TestFireHidesTheSpanAroundRun(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 2} {
		var seen trace.SpanContext
		sender := newTelemetry(t, nil).Fire()(func(ctx context.Context, _ *bus.Batch) error {
			seen = trace.SpanContextFromContext(ctx)
			return nil
		})
		batch := make([]*bus.Message, size)
		for i := range batch {
			batch[i] = &bus.Message{PayloadType: "report.due"}
		}
		if err := sender(inSpan(t, traceparent, ""), &bus.Batch{Messages: batch}); err != nil {
			t.Fatal(err)
		}
		if seen.IsValid() {
			t.Errorf("%d messages: got span %s in the context of the send, want none", size, seen.SpanID())
		}
		for _, m := range batch {
			if len(m.Headers) > 0 {
				t.Errorf("%d messages: got headers %v, want none", size, m.Headers)
			}
		}
	}
}

// TestLayersAreSafeForConcurrentUse is for the race detector: messages of all
// kinds share what is prepared for their payload type.
func TestLayersAreSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	telemetry := newTelemetry(t, propagation.TraceContext{})
	handler := telemetry.Consume()(func(context.Context, *bus.Message) error { return errors.New("no luck") })
	send := telemetry.Produce()(func(context.Context, *bus.Batch) error { return errors.New("no luck") })
	sender := telemetry.Fire()(func(ctx context.Context, b *bus.Batch) error { return send(ctx, b) })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 100 {
				headers := map[string]string{"traceparent": traceparent, "asyncmonolith-scheduled-by": otherTraceparent}
				if i%2 == 0 {
					delete(headers, "traceparent")
				}
				batch := []*bus.Message{{PayloadType: "report.due", Headers: headers}, {PayloadType: "report.due", Headers: headers}}
				_ = sender(t.Context(), &bus.Batch{Messages: batch[:1+i%2]})
				_ = handler(t.Context(), &bus.Message{PayloadType: "report.due", Consumer: "c", Attempt: i, Headers: headers})
			}
		})
	}
	wg.Wait()
}

// TestManyNames has more payload types than are kept in memory, from many
// goroutines.
func TestManyNames(t *testing.T) {
	t.Parallel()
	telemetry := newTelemetry(t, nil)
	handler := telemetry.Consume()(func(context.Context, *bus.Message) error { return nil })
	sender := telemetry.Produce()(func(context.Context, *bus.Batch) error { return nil })
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 1500 {
				m := &bus.Message{PayloadType: fmt.Sprint("type-", i), Consumer: "c", Attempt: 1}
				if err := errors.Join(handler(t.Context(), m), sender(t.Context(), &bus.Batch{Messages: []*bus.Message{m}})); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
