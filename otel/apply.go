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
func (t *Telemetry) Apply() bus.ProduceMiddleware {
	return func(next bus.ProduceFunc) bus.ProduceFunc {
		return func(ctx context.Context, b *bus.Batch) error { return t.apply(ctx, b, next) }
	}
}

func (t *Telemetry) apply(ctx context.Context, b *bus.Batch, next bus.ProduceFunc) error {
	return t.batch(ctx, b, next, opApply, trace.SpanKindConsumer)
}

// Receive returns the layer around the batches that receivers of package relay take over: give
// it to relay.RunnerConfig.Telemetry. It makes one span for each batch, a trace of its own, with
// links to the spans that published its first records. Their messages go on in the traces of
// those. Use it once.
func (t *Telemetry) Receive() bus.ProduceMiddleware {
	return func(next bus.ProduceFunc) bus.ProduceFunc {
		return func(ctx context.Context, b *bus.Batch) error {
			return t.batch(ctx, b, next, opReceive, trace.SpanKindConsumer)
		}
	}
}

// Publish returns the layer around the batches that log relays publish: give it to
// relay.RunnerConfig.PublishTelemetry. It makes one span for each batch, a trace of its own, with
// links to the spans that appended its first events: these spans, and not it, are what the events
// carry on. Use it once.
func (t *Telemetry) Publish() bus.ProduceMiddleware {
	return func(next bus.ProduceFunc) bus.ProduceFunc {
		return func(ctx context.Context, b *bus.Batch) error {
			return t.batch(ctx, b, next, opPublish, trace.SpanKindClient)
		}
	}
}

// batch makes a span for a batch of a projection or a relay, which its messages name.
func (t *Telemetry) batch(ctx context.Context, b *bus.Batch, next bus.ProduceFunc, op string, kind trace.SpanKind) error {
	ctx, batch := withoutSpan(ctx), b.Messages // Run may have been called in one
	if len(batch) == 0 {
		return next(ctx, b)
	}
	reader := batch[0].Consumer
	attributes := append(operation(op, ""), operationType(op), groupKey.String(reader), batchCountKey.Int(len(batch)))
	if mode := batch[0].Mode(); mode != "" {
		attributes = append(attributes, modeKey.String(mode))
	}
	ctx, span := t.tracer.Start(ctx, spanName(op, reader), trace.WithNewRoot(), trace.WithSpanKind(kind),
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
