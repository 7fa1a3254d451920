package otel

import (
	"cmp"
	"fmt"

	otelapi "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// TelemetryConfig sets up a [Telemetry]. The zero value works: everything is the global one then.
// This package does not shut providers down: the application does, after the processors have
// stopped, or the last spans are lost.
type TelemetryConfig struct {
	// TracerProvider makes the spans. Defaults to the global one, also one that
	// is registered later.
	TracerProvider trace.TracerProvider
	// MeterProvider makes the metrics. Defaults to the global one, also one that
	// is registered later.
	MeterProvider metric.MeterProvider
	// Propagator writes trace contexts, and whatever else it carries, into the
	// headers of messages and reads them back. What it writes is stored in the
	// database: one that carries baggage puts the baggage there. Defaults to the
	// global one and, as long as none is registered, to W3C trace context.
	Propagator propagation.TextMapPropagator
	// LinkOnly makes every delivery a trace of its own that links to the span which
	// created the message. By default the first, undelayed delivery of a message is a
	// child of that span, and links to it as well.
	LinkOnly bool
	// SkipCreateSpans leaves out the span of each message in a batch of several;
	// all of them then belong to the span of the batch. Defaults to false.
	SkipCreateSpans bool
}

// Telemetry traces and measures the chains of one application. Its methods are
// safe for concurrent use. Make one with [NewTelemetry], and use each of its layers once in
// a chain: twice makes every span and measurement twice.
type Telemetry struct {
	config     TelemetryConfig
	tracer     trace.Tracer
	meter      metric.Meter
	metrics    instruments
	sends      *cache[string, *sendRoute]
	deliveries *cache[deliveryKey, *deliveryRoute]
	attempts   *cache[int, trace.SpanStartOption]
}

// NewTelemetry makes a Telemetry. An error is that of a meter that refuses an instrument. It starts nothing: see [Telemetry.Observe].
func NewTelemetry(config TelemetryConfig) (*Telemetry, error) {
	config.TracerProvider = cmp.Or(config.TracerProvider, otelapi.GetTracerProvider())
	config.MeterProvider = cmp.Or(config.MeterProvider, otelapi.GetMeterProvider())
	config.Propagator = cmp.Or[propagation.TextMapPropagator](config.Propagator, &globalPropagator{})
	t := &Telemetry{
		config:     config,
		tracer:     config.TracerProvider.Tracer(scope, trace.WithSchemaURL(schemaURL)),
		meter:      config.MeterProvider.Meter(scope, metric.WithSchemaURL(schemaURL)),
		sends:      newCache(newSendRoute),
		deliveries: newCache(newDeliveryRoute),
		attempts:   newCache(newAttempt),
	}
	var err error
	if t.metrics, err = newInstruments(t.meter); err != nil {
		return nil, fmt.Errorf("otel: make the metrics: %w", err)
	}
	return t, nil
}
