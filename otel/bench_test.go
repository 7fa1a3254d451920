package otel_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
)

// BenchmarkConsumeOff is what the layer costs a message while nothing is traced
// or measured.
func BenchmarkConsumeOff(b *testing.B) { benchmarkConsume(b, nil) }

// BenchmarkConsumeOffWithContext adds the headers of a message that was traced
// where it was produced.
func BenchmarkConsumeOffWithContext(b *testing.B) {
	benchmarkConsume(b, map[string]string{"traceparent": traceparent, "tenant": "acme"})
}

func benchmarkConsume(b *testing.B, headers map[string]string) {
	b.Helper()
	handler := off(b).Consume()(func(context.Context, *bus.Message) error { return nil })
	m := &bus.Message{ID: uuid.UUID{1}, PayloadType: "order.placed", Consumer: "send-receipt", Headers: headers,
		Attempt: 1, CreatedAt: time.Now(), AvailableAt: time.Now()}
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if err := handler(ctx, m); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkProduceOff is what the layer costs a single message while nothing is
// traced or measured.
func BenchmarkProduceOff(b *testing.B) { benchmarkProduce(b, 1) }

// BenchmarkProduceOffBatch is a batch of 100 messages.
func BenchmarkProduceOffBatch(b *testing.B) { benchmarkProduce(b, 100) }

func benchmarkProduce(b *testing.B, size int) {
	b.Helper()
	sender := off(b).Produce()(func(context.Context, *bus.Batch) error { return nil })
	batch := make([]*bus.Message, size)
	for i := range batch {
		batch[i] = &bus.Message{ID: uuid.UUID{1}, PayloadType: "order.placed"}
	}
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if err := sender(ctx, &bus.Batch{Messages: batch}); err != nil {
			b.Fatal(err)
		}
	}
}

// off is a Telemetry whose providers do nothing.
func off(tb testing.TB) *amotel.Telemetry {
	tb.Helper()
	t, err := amotel.NewTelemetry(amotel.TelemetryConfig{
		TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider(),
		Propagator: propagation.TraceContext{},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
