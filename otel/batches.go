package otel

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
)

const maxLinks = 16

// Apply returns the layer around batches of projections: set it as
// projection.RunnerConfig.Telemetry. It makes one span per batch, in its own trace, with links to
// the spans that appended its first events. Use it once; a second layer doubles every span.
func (t *Telemetry) Apply() bus.ProduceMiddleware {
	return t.batches(opApply, trace.SpanKindConsumer)
}

// Receive returns the layer around batches that receivers accept: set it as
// inbox.RunnerConfig.Telemetry. It makes one span per batch, in its own trace, with links to the
// spans that published its first records. The messages continue the traces of those spans. Use it
// once; a second layer doubles every span.
func (t *Telemetry) Receive() bus.ProduceMiddleware {
	return t.batches(opReceive, trace.SpanKindConsumer)
}

// Publish returns the layer around batches that log forwarders publish: set it as
// relay.RunnerConfig.Telemetry. It makes one span per batch, in its own trace, with links to the
// spans that appended its first events. The published events carry the context of those spans, not
// of this span. Use it once; a second layer doubles every span.
func (t *Telemetry) Publish() bus.ProduceMiddleware {
	return t.batches(opPublish, trace.SpanKindClient)
}

// batches is a layer that makes a span of each batch.
func (t *Telemetry) batches(op string, kind trace.SpanKind) bus.ProduceMiddleware {
	return func(next bus.ProduceFunc) bus.ProduceFunc {
		return func(ctx context.Context, b *bus.Batch) error { return t.batch(ctx, b, next, op, kind) }
	}
}

// batch makes the span of a batch of a projection or a log forwarder, whose name is in its messages.
func (t *Telemetry) batch(ctx context.Context, b *bus.Batch, next bus.ProduceFunc, op string, kind trace.SpanKind) error {
	ctx, batch := withoutSpan(ctx), b.Messages // Run may have been called inside a span
	if len(batch) == 0 {
		return next(ctx, b)
	}
	reader := batch[0].Consumer
	attributes := append(operation(op, ""), operationType(op), groupKey.String(reader), batchCountKey.Int(len(batch)))
	if mode := access.Mode(batch[0]); mode != "" {
		attributes = append(attributes, modeKey.String(mode))
	}
	ctx, span := t.tracer.Start(ctx, spanName(op, reader), trace.WithNewRoot(), trace.WithSpanKind(kind),
		trace.WithAttributes(attributes...), trace.WithLinks(t.creationLinks(ctx, batch)...))
	result := errPanicked
	defer func() { end(span, result) }()
	result = next(ctx, b)
	return result
}

// creationLinks links to the spans that appended the events, once each.
func (t *Telemetry) creationLinks(ctx context.Context, batch []*bus.Message) (links []trace.Link) {
	seen := map[trace.SpanID]bool{}
	for _, m := range batch {
		if len(links) == maxLinks {
			break
		}
		if _, creation := t.propagator.extract(ctx, m.Headers); creation.IsValid() && !seen[creation.SpanID()] {
			seen[creation.SpanID()] = true
			links = append(links, trace.Link{SpanContext: creation})
		}
	}
	return links
}
