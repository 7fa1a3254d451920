package main

import (
	"context"
	"log/slog"
	"os"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"
)

// newTracerProvider exports to a collector when OTEL_EXPORTER_OTLP_ENDPOINT is
// set. Without one spans are made all the same, so that logs have trace ids.
func newTracerProvider(lifecycle fx.Lifecycle) (trace.TracerProvider, error) {
	otel.SetTextMapPropagator(propagation.TraceContext{})
	var options []sdktrace.TracerProviderOption
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" {
		exporter, err := otlptracehttp.New(context.Background())
		if err != nil {
			return nil, err
		}
		options = append(options, sdktrace.WithBatcher(exporter))
	}
	provider := sdktrace.NewTracerProvider(options...)
	lifecycle.Append(fx.StopHook(provider.Shutdown))
	return provider, nil
}

func newLogger() *slog.Logger {
	return slog.New(withTraceID{slog.NewJSONHandler(os.Stderr, nil)})
}

// withTraceID adds the ids of the context's span to every line, as the otelslog
// bridge does for logs that are exported.
type withTraceID struct{ slog.Handler }

func (h withTraceID) Handle(ctx context.Context, record slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		record.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return h.Handler.Handle(ctx, record)
}

func (h withTraceID) WithAttrs(attrs []slog.Attr) slog.Handler {
	return withTraceID{h.Handler.WithAttrs(attrs)}
}

func (h withTraceID) WithGroup(name string) slog.Handler {
	return withTraceID{h.Handler.WithGroup(name)}
}
