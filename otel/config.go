package otel

import (
	"errors"
	"fmt"

	otelapi "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// SpanRelation says how the span of a run relates to the span that created its
// message.
type SpanRelation uint8

const (
	// ParentAndLink makes the first, undelayed delivery of a message a child of
	// the span that created it, and links every delivery to that span.
	ParentAndLink SpanRelation = iota
	// LinkOnly makes every delivery a trace of its own that links to the span
	// that created the message.
	LinkOnly
)

// Config sets up a [Telemetry]. The zero value works: everything is the global
// one then. Providers are not shut down by this package: whoever made them does
// so, after the processors have stopped, or the last spans are lost.
type Config struct {
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
	// SpanRelation says how runs relate to what created their message. Defaults
	// to ParentAndLink.
	SpanRelation SpanRelation
	// SkipCreateSpans leaves out the span of each message in a batch of several;
	// all of them then belong to the span of the batch. Defaults to false.
	SkipCreateSpans bool
}

// Telemetry traces and measures the chains of one application. Its methods are
// safe for concurrent use. Make one with [New], and use each of its layers once in
// a chain: twice makes every span and measurement twice.
type Telemetry struct {
	config     Config
	tracer     trace.Tracer
	meter      metric.Meter
	metrics    instruments
	sends      cache[string, *sendRoute]
	deliveries cache[deliveryKey, *deliveryRoute]
}

// New makes a Telemetry. It reports everything that is wrong with the
// configuration at once: a SpanRelation that there is none, and a meter that
// refuses an instrument. It starts nothing: see [Telemetry.Observe].
func New(config Config) (*Telemetry, error) {
	if config.TracerProvider == nil {
		config.TracerProvider = otelapi.GetTracerProvider()
	}
	if config.MeterProvider == nil {
		config.MeterProvider = otelapi.GetMeterProvider()
	}
	if config.Propagator == nil {
		config.Propagator = &globalPropagator{}
	}
	t := &Telemetry{
		config: config,
		tracer: config.TracerProvider.Tracer(scope, trace.WithSchemaURL(schemaURL)),
		meter:  config.MeterProvider.Meter(scope, metric.WithSchemaURL(schemaURL)),
	}
	t.sends.compute, t.deliveries.compute = newSendRoute, newDeliveryRoute
	var err error
	if t.metrics, err = newInstruments(t.meter); err != nil {
		err = fmt.Errorf("otel: make the metrics: %w", err)
	}
	if err := errors.Join(config.validate(), err); err != nil {
		return nil, err
	}
	return t, nil
}

func (c Config) validate() error {
	if c.SpanRelation > LinkOnly {
		return fmt.Errorf("otel: Config.SpanRelation %d: ParentAndLink or LinkOnly is allowed", c.SpanRelation)
	}
	return nil
}
