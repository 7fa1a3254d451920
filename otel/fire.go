package otel

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Fire returns the layer around the fires of schedules: give it to
// schedule.ProcessorConfig.Telemetry. Every message that a schedule makes begins
// a trace of its own, which links to the span that wrote the schedule; for that
// give [Telemetry.Headers] to the scheduler. Use it once, for it makes a span.
func (t *Telemetry) Fire() bus.ProduceMiddleware {
	return func(next bus.ProduceFunc) bus.ProduceFunc {
		return func(ctx context.Context, b *bus.Batch) error { return t.fire(ctx, b, next) }
	}
}

func (t *Telemetry) fire(ctx context.Context, b *bus.Batch, next bus.ProduceFunc) error {
	ctx, batch := withoutSpan(ctx), b.Messages // Run may have been called in one
	spans, late := make([]trace.Span, len(batch)), make([]float64, len(batch))
	inner := ctx
	for i, m := range batch {
		inner, spans[i] = t.startFire(ctx, m)
		late[i] = seconds(m.CreatedAt.Sub(m.AvailableAt)) // the produce function forgets
	}
	if len(batch) > 1 { // what is sent together belongs to none of them
		inner = ctx
	}
	result := errUnwound
	defer func() {
		for i, span := range spans {
			identify(span, batch[i]) // it has been given an id only now
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
	if creation := t.creationOf(ctx, m); creation.IsValid() { // the schedule's author has set it
		return t.tracer.Start(ctx, r.fire, with(r.firing, trace.WithLinks(trace.Link{SpanContext: creation}))...)
	}
	return t.startCreation(ctx, r.fire, r.firing, m)
}
