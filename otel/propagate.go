package otel

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	otelapi "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
)

const (
	// scheduledBy is the header of a scheduled message with the span that wrote its schedule, as a
	// W3C traceparent. It is not the message's creation context, which each fire makes anew.
	scheduledBy = system + "-scheduled-by"

	// runPrefix begins headers with the span of a run, for consumers that forward messages.
	runPrefix = system + "-run-"

	traceparent = "traceparent"
	tracestate  = "tracestate"
	baggage     = "baggage"

	// maxTracestate is the maximum tracestate that is written or read, in bytes: the length that
	// W3C trace context requires every party to propagate.
	maxTracestate = 512
	// maxInjected limits what is added to the headers of one message, in bytes. It leaves the
	// other half to the application.
	maxInjected = limits.Headers / 2
)

// schedulingContext reads what Headers wrote. ctx must have no span.
func schedulingContext(ctx context.Context, headers map[string]string) trace.SpanContext {
	value, ok := headers[scheduledBy]
	if !ok {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceparent: value}))
}

// Quiet returns a context in which a parent-based sampler, the SDK's default, traces nothing. Pass
// it to the Run of processors if the database handle is traced. Their polls then make no spans,
// while [Telemetry.Consume] still traces every message. Package fxmodule does this.
func Quiet(ctx context.Context) context.Context {
	var config trace.SpanContextConfig
	_, _ = rand.Read(config.TraceID[:]) // never fails
	_, _ = rand.Read(config.SpanID[:])
	return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(config))
}

// withoutSpan hides the span of ctx, if it has one.
func withoutSpan(ctx context.Context) context.Context {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return trace.ContextWithSpanContext(ctx, trace.SpanContext{})
}

// propagator carries trace contexts in the headers of messages.
type propagator struct{ format propagation.TextMapPropagator }

// extract returns ctx with what the headers carry, and the creation context, which is invalid if
// there is none. ctx must have no span. Headers may be malformed: the message is processed
// regardless.
func (p propagator) extract(ctx context.Context, headers map[string]string) (extracted context.Context, creation trace.SpanContext) {
	if len(headers) == 0 {
		return ctx, trace.SpanContext{}
	}
	defer func() {
		if value := recover(); value != nil {
			otelapi.Handle(fmt.Errorf("otel: the propagator panicked on a message's headers: %T", value))
			extracted, creation = ctx, trace.SpanContext{}
		}
	}()
	extracted = p.format.Extract(ctx, carrier(headers))
	return extracted, trace.SpanContextFromContext(extracted)
}

// creationOf returns the creation context that a message on the produce side already has: it was
// forwarded, or a schedule fired it.
func (p propagator) creationOf(ctx context.Context, m *bus.Message) trace.SpanContext {
	_, creation := p.extract(withoutSpan(ctx), m.Headers)
	return creation
}

// inject makes the span of ctx the creation context of a message without one. It replaces the map
// of headers, which the caller may share.
func (p propagator) inject(ctx context.Context, m *bus.Message) {
	p.format.Inject(ctx, &injector{message: m, propagator: p.format})
}

// carrier lets a propagator read a message's headers.
type carrier map[string]string

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(key string) string {
	value := c[key]
	if key == tracestate && len(value) > maxTracestate {
		return ""
	}
	return value
}

// Set implements propagation.TextMapCarrier. It is never called.
func (c carrier) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (c carrier) Keys() []string { return slices.Collect(maps.Keys(c)) }

// injector adds what a propagator writes to a message's headers, unless the message would become
// too large to store.
type injector struct {
	message    *bus.Message
	propagator propagation.TextMapPropagator
	owned      bool // the message's map is a copy
	room       int  // bytes that may still be added
}

// Get implements propagation.TextMapCarrier.
func (i *injector) Get(key string) string { return i.message.Headers[key] }

// Keys implements propagation.TextMapCarrier.
func (i *injector) Keys() []string { return carrier(i.message.Headers).Keys() }

// Set implements propagation.TextMapCarrier. It does not overwrite a header set by the
// application.
func (i *injector) Set(key, value string) {
	if !i.owned {
		i.own()
	}
	_, taken := i.message.Headers[key]
	size := len(key) + len(value)
	switch {
	case taken, size > i.room, key == "", key == tracestate && len(value) > maxTracestate:
		return
	case limits.CheckText(key) != nil, limits.CheckText(value) != nil:
		return
	}
	i.room -= size
	i.message.Headers[key] = value
}

// own replaces the message's map with a writable copy. It removes the rest of an invalid trace
// context, which must not mix with the new one.
func (i *injector) own() {
	headers := make(map[string]string, len(i.message.Headers)+2)
	size := 0
	for key, value := range i.message.Headers {
		headers[key] = value
		size += len(key) + len(value)
	}
	if len(headers) > 0 {
		for _, field := range i.propagator.Fields() {
			if value, ok := headers[field]; ok && field != baggage {
				size -= len(field) + len(value)
				delete(headers, field)
			}
		}
	}
	i.message.Headers, i.owned, i.room = headers, true, min(maxInjected, limits.Headers-size)
}

// globalPropagator is OpenTelemetry's global propagator. Until one is registered, it is W3C trace
// context, so that traces stay connected even if the application forgets to register one.
type globalPropagator struct{ registered atomic.Bool }

func (g *globalPropagator) current() propagation.TextMapPropagator {
	p := otelapi.GetTextMapPropagator()
	if !g.registered.Load() {
		if len(p.Fields()) == 0 {
			return propagation.TraceContext{}
		}
		g.registered.Store(true)
	}
	return p
}

// Inject implements propagation.TextMapPropagator.
func (g *globalPropagator) Inject(ctx context.Context, c propagation.TextMapCarrier) {
	g.current().Inject(ctx, c)
}

// Extract implements propagation.TextMapPropagator.
func (g *globalPropagator) Extract(ctx context.Context, c propagation.TextMapCarrier) context.Context {
	return g.current().Extract(ctx, c)
}

// Fields implements propagation.TextMapPropagator.
func (g *globalPropagator) Fields() []string { return g.current().Fields() }
