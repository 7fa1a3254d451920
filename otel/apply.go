package otel

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// maxLinks bounds the links of one span.
const maxLinks = 16

// Apply returns the layer around the batches of projections: give it to
// projection.RunnerConfig.Telemetry. It makes one span for each batch, a trace of its
// own, with links to the spans that appended its first events. Use it once.
func (t *Telemetry) Apply() bus.SendMiddleware {
	return func(next bus.Sender) bus.Sender {
		return func(ctx context.Context, b *bus.Batch) error { return t.apply(ctx, b, next) }
	}
}

func (t *Telemetry) apply(ctx context.Context, b *bus.Batch, next bus.Sender) error {
	ctx, batch := withoutSpan(ctx), b.Messages // Run may have been called in one
	if len(batch) == 0 {
		return next(ctx, b)
	}
	reader := batch[0].Consumer
	attributes := append(operation(opApply, ""), operationType(opProcess), groupKey.String(reader), batchCountKey.Int(len(batch)))
	if mode := batch[0].Event.Mode(); mode != "" {
		attributes = append(attributes, modeKey.String(mode))
	}
	ctx, span := t.tracer.Start(ctx, spanName(opApply, reader), trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attributes...), trace.WithLinks(t.creationLinks(ctx, batch)...))
	result := errPanicked
	defer func() { end(span, result) }()
	result = next(ctx, b)
	return result
}

// creationLinks links to what appended the events, once each.
func (t *Telemetry) creationLinks(ctx context.Context, batch []*bus.Message) (links []trace.Link) {
	seen := map[trace.SpanID]bool{}
	for _, m := range batch {
		if len(links) == maxLinks {
			break
		}
		if _, creation := t.extract(ctx, m.Headers); creation.IsValid() && !seen[creation.SpanID()] {
			seen[creation.SpanID()] = true
			links = append(links, trace.Link{SpanContext: creation})
		}
	}
	return links
}
