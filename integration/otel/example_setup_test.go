package otel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// application is the set-up that docs/observability.md shows.
type application struct {
	producer  *outbox.Producer
	scheduler *schedule.Scheduler
	processor *outbox.Processor
	schedules *schedule.Processor
	telemetry *amotel.Telemetry
	shutdown  func(context.Context) error
}

func setUp(db *bun.DB, registry *bus.Registry, exporter sdktrace.SpanExporter, reader sdkmetric.Reader,
	logs slog.Handler) (*application, error) {
	// snippet: providers
	tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter)) // from otlptracehttp.New, for instance
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))

	telemetry, err := amotel.NewTelemetry(amotel.TelemetryConfig{
		TracerProvider: tracers,
		MeterProvider:  meters,
		Propagator:     propagation.TraceContext{},
	})
	// end
	if err != nil {
		return nil, err
	}

	// snippet: wiring
	logger := slog.New(traced{logs})
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{Telemetry: telemetry.Produce()})
	if err != nil {
		return nil, err
	}
	processor, err := outbox.NewProcessor(db, registry, outbox.ProcessorConfig{
		Middleware: middleware.Default(middleware.Options{Logger: logger, Telemetry: telemetry.Consume()}),
	})
	if err != nil {
		return nil, err
	}
	scheduler, err := schedule.NewScheduler(registry, schedule.SchedulerConfig{Headers: telemetry.Headers})
	if err != nil {
		return nil, err
	}
	schedules, err := schedule.NewProcessor(db, registry, producer, schedule.ProcessorConfig{Telemetry: telemetry.Fire()})
	if err != nil {
		return nil, err
	}
	// end
	return &application{producer, scheduler, processor, schedules, telemetry, func(ctx context.Context) error {
		return errors.Join(tracers.Shutdown(ctx), meters.Shutdown(ctx))
	}}, nil
}

// run blocks until ctx ends.
func (a *application) run(ctx context.Context) error {
	processor, schedules, telemetry := a.processor, a.schedules, a.telemetry
	// snippet: running
	parts := []func(context.Context) error{
		func(ctx context.Context) error { return processor.Run(amotel.Quiet(ctx)) },
		func(ctx context.Context) error { return schedules.Run(amotel.Quiet(ctx)) },
		func(ctx context.Context) error { return telemetry.Observe(ctx, processor, 15*time.Second) },
	}
	// end
	results := make([]error, len(parts))
	var running sync.WaitGroup
	for i, part := range parts {
		running.Go(func() { results[i] = part(ctx) })
	}
	running.Wait()
	return errors.Join(results...)
}

// snippet: logs

// traced adds the ids of the trace and span to log lines.
type traced struct{ slog.Handler }

func (h traced) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{h.Handler.WithAttrs(attrs)} }

func (h traced) WithGroup(name string) slog.Handler { return traced{h.Handler.WithGroup(name)} }

// end

// snippet: errortype

// CardError is why a card was declined.
type CardError struct{ Code string }

func (e *CardError) Error() string { return "card declined: " + e.Code }

// ErrorType returns the error.type of spans and metrics. Use few values.
func (e *CardError) ErrorType() string { return "card." + e.Code }

// end

// TestSetUpInTheDocuments runs the set-up of the documents.
func TestSetUpInTheDocuments(t *testing.T) {
	t.Parallel()
	registry := must(bus.NewRegistry(bus.Consume("charge", func(context.Context, order) error {
		return bus.Permanent(fmt.Errorf("charge: %w", &CardError{"expired"}))
	})))(t)
	db := testdb.SQLite(t)
	check(t, outbox.Migrate(t.Context(), db, registry.Tables()))
	exporter, reader := &keeper{InMemoryExporter: tracetest.NewInMemoryExporter()}, sdkmetric.NewManualReader()
	var logs safeBuffer
	app := must(setUp(db, registry, exporter, reader, slog.NewJSONHandler(&logs, nil)))(t)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	result := make(chan error, 1)
	go func() { result <- app.run(ctx) }()
	_, err := app.producer.Produce(t.Context(), db, order{"1"})
	check(t, err)
	poll(t, "the message is poisoned and the queue is measured", func() bool {
		return logs.Len() > 0 && len(collect(t, reader)) > 0
	})
	_, err = app.scheduler.Create(t.Context(), db, order{"2"}, "@daily", "UTC")
	check(t, err)
	stop()
	check(t, <-result)
	check(t, app.shutdown(context.WithoutCancel(t.Context())))
	spans := exporter.GetSpans()
	if len(spans) != 2 || spans[1].Name != "process order.placed" || spans[1].Parent.SpanID() != spans[0].SpanContext.SpanID() {
		t.Fatalf("spans: got %v, want a send and its process", spans)
	}
	if got := valueOf(spans[1].Attributes, "error.type"); got != "card.expired" {
		t.Errorf("error.type: got %q, want that of the error", got)
	}
	var line struct {
		Msg     string
		TraceID string `json:"trace_id"`
		SpanID  string `json:"span_id"`
	}
	check(t, json.Unmarshal([]byte(strings.TrimSpace(logs.String())), &line))
	if line.Msg != "message poisoned" || line.TraceID != spans[1].SpanContext.TraceID().String() ||
		line.SpanID != spans[1].SpanContext.SpanID().String() {
		t.Errorf("log: got %+v, want a line with the ids of the run's span", line)
	}
}

// keeper keeps its spans after a shutdown.
type keeper struct{ *tracetest.InMemoryExporter }

func (*keeper) Shutdown(context.Context) error { return nil }

// safeBuffer is written and read by several goroutines.
type safeBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) Len() int { b.mu.Lock(); defer b.mu.Unlock(); return b.text.Len() }

func (b *safeBuffer) String() string { b.mu.Lock(); defer b.mu.Unlock(); return b.text.String() }
