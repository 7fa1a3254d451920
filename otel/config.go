package otel

import (
	"cmp"
	"fmt"

	otelapi "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// TelemetryConfig configures a [Telemetry]. The zero value works: then everything is
// OpenTelemetry's global one. This package does not shut providers down. The application must,
// after the processors have stopped, or the last spans are lost.
type TelemetryConfig struct {
	// TracerProvider makes the spans. Defaults to the global one, even if it is registered later.
	TracerProvider trace.TracerProvider
	// MeterProvider makes the metrics. Defaults to the global one, even if it is registered later.
	MeterProvider metric.MeterProvider
	// Propagator writes trace contexts, and anything else it carries, into the headers of messages
	// and reads them back. Headers are stored in the database, including any baggage. Defaults to
	// the global one or, if none is registered, W3C trace context.
	Propagator propagation.TextMapPropagator
	// LinkOnly makes every delivery its own trace, with a link to the span that created the
	// message. By default the first, undelayed delivery of a message is a child of that span, and
	// links to it as well.
	LinkOnly bool
	// SkipCreateSpans omits the span of each message in a batch of several; all of them then
	// belong to the batch's span. Defaults to false.
	SkipCreateSpans bool
}

// Telemetry traces and measures the chains of one application. Its methods are safe for concurrent
// use. Make it with [NewTelemetry], and use each of its layers once in a chain: a second one would
// duplicate every span and measurement.
type Telemetry struct {
	config     TelemetryConfig
	tracer     trace.Tracer
	meter      metric.Meter
	metrics    instruments
	propagator propagator
	sends      *cache[string, *sendRoute]
	deliveries *cache[deliveryKey, *deliveryRoute]
	attempts   *cache[int, trace.SpanStartOption]
}

// NewTelemetry makes a Telemetry. It returns an error if the meter rejects an instrument. It
// starts nothing: see [Telemetry.Observe].
func NewTelemetry(config TelemetryConfig) (*Telemetry, error) {
	config.TracerProvider = cmp.Or(config.TracerProvider, otelapi.GetTracerProvider())
	config.MeterProvider = cmp.Or(config.MeterProvider, otelapi.GetMeterProvider())
	config.Propagator = cmp.Or[propagation.TextMapPropagator](config.Propagator, &globalPropagator{})
	t := &Telemetry{
		config:     config,
		tracer:     config.TracerProvider.Tracer(scope, trace.WithSchemaURL(schemaURL)),
		meter:      config.MeterProvider.Meter(scope, metric.WithSchemaURL(schemaURL)),
		propagator: propagator{config.Propagator},
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
