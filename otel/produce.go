package otel

import (
	"context"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Produce returns the layer of the produce chain: set it as outbox.ProducerConfig.Telemetry. Its
// spans are children of the span in Produce's context, and end when the messages are written,
// before the caller's commit. Use it once; a second layer doubles every span.
func (t *Telemetry) Produce() bus.ProduceMiddleware {
	return func(next bus.ProduceFunc) bus.ProduceFunc {
		return func(ctx context.Context, b *bus.Batch) error {
			if len(b.Messages) == 0 {
				return next(ctx, b)
			}
			return t.send(ctx, b, next)
		}
	}
}

// sendRoute is precomputed for the messages of one payload type. The route of batches with several
// types has an empty destination.
type sendRoute struct {
	destination         string
	send, create, fire  string // span names
	producer, client    []trace.SpanStartOption
	creating, firing    []trace.SpanStartOption
	sent, sending, late labels // of measurements
}

func newSendRoute(destination string) *sendRoute {
	start := func(kind trace.SpanKind, name string) []trace.SpanStartOption {
		return []trace.SpanStartOption{trace.WithSpanKind(kind),
			trace.WithAttributes(append(operation(name, destination), operationType(name))...)}
	}
	r := &sendRoute{
		destination: destination,
		send:        spanName(opSend, destination), create: spanName(opCreate, destination), fire: spanName(opFire, destination),
		producer: start(trace.SpanKindProducer, opSend), client: start(trace.SpanKindClient, opSend),
		creating: start(trace.SpanKindProducer, opCreate), firing: start(trace.SpanKindProducer, opFire),
		late: newLabels(destinationKey.String(destination)),
	}
	r.sent, r.sending = sendLabels(destination)
	return r
}

// sendLabels returns the labels of the sent messages and of the send.
func sendLabels(destination string, failure ...attribute.KeyValue) (sent, sending labels) {
	attributes := append(operation(opSend, destination), failure...)
	return newLabels(attributes...), newLabels(append(attributes, operationType(opSend))...)
}

func spanName(operation, destination string) string {
	if destination == "" {
		return operation
	}
	return operation + " " + destination
}

// destinationOf returns the payload type of a batch, or "" if there are several.
func destinationOf(batch []*bus.Message) string {
	for _, m := range batch[1:] {
		if m.PayloadType != batch[0].PayloadType {
			return ""
		}
	}
	return batch[0].PayloadType
}

func (t *Telemetry) send(ctx context.Context, b *bus.Batch, next bus.ProduceFunc) (err error) {
	start, batch := time.Now(), b.Messages
	r := t.sends.get(destinationOf(batch))
	var span trace.Span
	if len(batch) == 1 {
		ctx, span = t.startSend(ctx, r, batch[0])
	} else {
		ctx, span = t.startSendBatch(ctx, r, batch)
	}
	result := errUnwound
	defer func() {
		t.sent(ctx, r, b.Messages, time.Since(start), result) // messages that the other layers passed on
		end(span, result)
	}()
	result = next(ctx, b)
	return result
}

// startSend starts the span of a single message. The span is its creation context unless it
// already has one.
func (t *Telemetry) startSend(ctx context.Context, r *sendRoute, m *bus.Message) (context.Context, trace.Span) {
	creation := t.propagator.creationOf(ctx, m)
	var span trace.Span
	if creation.IsValid() {
		ctx, span = t.tracer.Start(ctx, r.send, with(r.client, trace.WithLinks(trace.Link{SpanContext: creation}))...)
	} else {
		ctx, span = t.startCreation(ctx, r.send, r.producer, m)
	}
	identify(span, m)
	return ctx, span
}

// startSendBatch starts the span of a batch, which links to the creation context of each message.
// Messages without one get their own span.
func (t *Telemetry) startSendBatch(ctx context.Context, r *sendRoute, batch []*bus.Message) (context.Context, trace.Span) {
	links := make([]trace.Link, 0, len(batch))
	var bare []*bus.Message
	for _, m := range batch {
		creation := t.propagator.creationOf(ctx, m)
		if !creation.IsValid() {
			if t.config.SkipCreateSpans {
				bare = append(bare, m)
				continue
			}
			creation = t.create(ctx, m)
		}
		if creation.IsValid() {
			links = append(links, linkTo(creation, r, m))
		}
	}
	options := r.client
	if len(bare) > 0 {
		options = r.producer
	}
	ctx, span := t.tracer.Start(ctx, r.send, with(options, trace.WithLinks(links...))...)
	if span.IsRecording() {
		span.SetAttributes(batchCountKey.Int(len(batch)))
	}
	for _, m := range bare {
		t.propagator.inject(ctx, m)
	}
	return ctx, span
}

// create makes the creation context of one message in a batch.
func (t *Telemetry) create(ctx context.Context, m *bus.Message) trace.SpanContext {
	r := t.sends.get(m.PayloadType)
	_, span := t.startCreation(ctx, r.create, r.creating, m)
	identify(span, m)
	span.End()
	return span.SpanContext()
}

// startCreation starts a span and writes its context into the headers of a message without a
// creation context. It links to the span that scheduled the message.
func (t *Telemetry) startCreation(
	ctx context.Context, name string, options []trace.SpanStartOption, m *bus.Message,
) (context.Context, trace.Span) {
	if scheduling := schedulingContext(withoutSpan(ctx), m.Headers); scheduling.IsValid() {
		options = with(options, trace.WithLinks(scheduleLink(scheduling)))
	}
	ctx, span := t.tracer.Start(ctx, name, options...)
	t.propagator.inject(ctx, m)
	return ctx, span
}

// with appends to a copy of options, which are shared.
func with(options []trace.SpanStartOption, more ...trace.SpanStartOption) []trace.SpanStartOption {
	return append(options[:len(options):len(options)], more...)
}

func linkTo(creation trace.SpanContext, r *sendRoute, m *bus.Message) trace.Link {
	attributes := []attribute.KeyValue{messageIDKey.String(m.ID.String())}
	if r.destination == "" {
		attributes = append(attributes, destinationKey.String(m.PayloadType))
	}
	return trace.Link{SpanContext: creation, Attributes: attributes}
}

// scheduleLink links a message to the span that wrote its schedule.
func scheduleLink(scheduling trace.SpanContext) trace.Link {
	return trace.Link{SpanContext: scheduling, Attributes: []attribute.KeyValue{linkKey.String("schedule")}}
}

func identify(span trace.Span, m *bus.Message) {
	if span.IsRecording() && m.ID != (uuid.UUID{}) {
		span.SetAttributes(messageIDKey.String(m.ID.String()))
	}
}

// end ends a span of the produce side.
func end(span trace.Span, err error) {
	if err != nil && span.IsRecording() {
		span.SetStatus(codes.Error, "")
		span.SetAttributes(errorTypeKey.String(errorType(err)))
	}
	span.End()
}

// sent measures a send. Within a transaction it counts what was written, not what was committed.
func (t *Telemetry) sent(ctx context.Context, r *sendRoute, batch []*bus.Message, took time.Duration, err error) {
	labelsOf := func(r *sendRoute) (sent, sending labels) { return r.sent, r.sending }
	if err != nil {
		failure := errorTypeKey.String(errorType(err))
		labelsOf = func(r *sendRoute) (sent, sending labels) { return sendLabels(r.destination, failure) }
	}
	sent, sending := labelsOf(r)
	t.metrics.sending.Record(ctx, took.Seconds(), sending.record...)
	if r.destination != "" {
		t.metrics.sent.Add(ctx, int64(len(batch)), sent.add...)
		return
	}
	for _, m := range batch {
		if m != nil { // nil is a layer's mistake
			sent, _ := labelsOf(t.sends.get(m.PayloadType))
			t.metrics.sent.Add(ctx, 1, sent.add...)
		}
	}
}

// Fire returns the layer around the fires of schedules: set it as
// schedule.ProcessorConfig.Telemetry. Every message that a schedule produces begins its own trace,
// with a link to the span that wrote the schedule; for the link, set [Telemetry.Headers] on the
// scheduler. Use it once; a second layer doubles every span.
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
	if creation := t.propagator.creationOf(ctx, m); creation.IsValid() { // the application set it in the schedule's headers
		return t.tracer.Start(ctx, r.fire, with(r.firing, trace.WithLinks(trace.Link{SpanContext: creation}))...)
	}
	return t.startCreation(ctx, r.fire, r.firing, m)
}

// Headers returns the headers that let a schedule's messages link to the span of ctx: set it as
// schedule.SchedulerConfig.Headers. They do not include baggage, because a schedule outlives it.
// It returns nil if ctx has no span.
func (t *Telemetry) Headers(ctx context.Context) map[string]string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	if carrier[traceparent] == "" {
		return nil
	}
	return map[string]string{scheduledBy: carrier[traceparent]}
}
