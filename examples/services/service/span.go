package service

import (
	"context"
	"os"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Span is what the story shows of a span.
type Span struct {
	Trace, ID, Parent string // Parent is empty for the first of a trace
	Links             []string
	Service, Name     string
	Consumer          string `json:",omitempty"`
	Order             string `json:",omitempty"`
	Process           int    // in which it was made
	Start             time.Time
}

// Tracers makes spans that are told. Yours are exported to a collector.
func Tracers(s Settings) *sdktrace.TracerProvider {
	return sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter{s.Name})) // at once: the process may be killed
}

// exporter tells spans.
type exporter struct{ service string }

// ExportSpans implements sdktrace.SpanExporter.
func (e exporter) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, s := range spans {
		span := Span{
			Trace: s.SpanContext().TraceID().String(), ID: s.SpanContext().SpanID().String(),
			Service: e.service, Name: s.Name(), Process: os.Getpid(), Start: s.StartTime(),
		}
		if s.Parent().IsValid() {
			span.Parent = s.Parent().SpanID().String()
		}
		for _, link := range s.Links() {
			span.Links = append(span.Links, link.SpanContext.SpanID().String())
		}
		for _, a := range s.Attributes() {
			switch a.Key {
			case "messaging.consumer.group.name":
				span.Consumer = a.Value.AsString()
			case "order":
				span.Order = a.Value.AsString()
			}
		}
		Tell(Event{Span: &span})
	}
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (e exporter) Shutdown(context.Context) error { return nil }
