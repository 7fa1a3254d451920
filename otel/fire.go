package otel

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Fire returns the layer around the fires of schedules: set it as
// schedule.ProcessorConfig.Telemetry. Every message that a schedule produces begins its own trace,
// with a link to the span that wrote the schedule; for the link, set [Telemetry.Headers] on the
// scheduler. Use it once: each use makes a span.
func (t *Telemetry) Fire() bus.ProduceMiddleware {
	return func(next bus.ProduceFunc) bus.ProduceFunc {
		return func(ctx context.Context, b *bus.Batch) error { return t.fire(ctx, b, next) }
	}
}

func (t *Telemetry) fire(ctx context.Context, b *bus.Batch, next bus.ProduceFunc) error {
	ctx, batch := withoutSpan(ctx), b.Messages // Run may have been called inside a span
	spans, late := make([]trace.Span, len(batch)), make([]float64, len(batch))
	inner := ctx
	for i, m := range batch {
		inner, spans[i] = t.startFire(ctx, m)
		late[i] = seconds(m.CreatedAt.Sub(m.AvailableAt)) // the produce function resets it
	}
	if len(batch) > 1 { // a batch belongs to none of the spans
		inner = ctx
	}
	result := errUnwound
	defer func() {
		for i, span := range spans {
			identify(span, batch[i]) // its id was just assigned
			if result == nil {
				t.metrics.lateness.Record(trace.ContextWithSpan(ctx, span), late[i], t.sends.get(batch[i].PayloadType).late.record...)
			}
			end(span, result)
		}
	}()
	result = next(inner, b)
	return result
}

func (t *Telemetry) startFire(ctx context.Context, m *bus.Message) (context.Context, trace.Span) {
	r := t.sends.get(m.PayloadType)
	if creation := t.creationOf(ctx, m); creation.IsValid() { // the application set it in the schedule's headers
		return t.tracer.Start(ctx, r.fire, with(r.firing, trace.WithLinks(trace.Link{SpanContext: creation}))...)
	}
	return t.startCreation(ctx, r.fire, r.firing, m)
}
