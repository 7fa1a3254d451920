package otel

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
)

// undelayed is how much later than its creation a message may be due and still count as not
// delayed: the clocks of an application and its database differ.
const undelayed = 10 * time.Millisecond

// Consume returns the layer of the consume chain: set it as middleware.Options.Telemetry, or put it
// first in your own chain. It makes one span per run, around the inner layers and the consumer, and
// changes neither the message nor its outcome. Use it once, outermost; a second layer doubles every
// span. Layers outside it are not in the span, and their outcomes are not measured.
func (t *Telemetry) Consume() bus.Middleware {
	return func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Message) error { return t.process(ctx, m, next) }
	}
}

// deliveryKey is what a deliveryRoute depends on.
type deliveryKey struct {
	payloadType, consumer string
	forwards              bool // the consumer forwards messages
}

// deliveryRoute is precomputed for deliveries of one payload type to one consumer.
type deliveryRoute struct {
	name       string                  // of the span
	start      []trace.SpanStartOption // of every run
	attributes []attribute.KeyValue    // of the conventions' metrics
	process    labels                  // the same
	consumer   labels
	outcomes   [bus.Errored + 1]labels
}

func newDeliveryRoute(key deliveryKey) *deliveryRoute {
	consumer := []attribute.KeyValue{destinationKey.String(key.payloadType), groupKey.String(key.consumer)}
	attributes := slices.Clip(append(operation(opProcess, key.payloadType), groupKey.String(key.consumer)))
	// In a trace, a run that forwards a message is shown as its publishing. It is measured like
	// any other.
	op, kind := opProcess, trace.SpanKindConsumer
	if key.forwards {
		op, kind = opPublish, trace.SpanKindProducer
	}
	shown := append(operation(op, key.payloadType), groupKey.String(key.consumer), operationType(op))
	r := &deliveryRoute{
		name:       spanName(op, key.payloadType),
		start:      []trace.SpanStartOption{trace.WithSpanKind(kind), trace.WithAttributes(shown...)},
		attributes: attributes,
		process:    newLabels(attributes...),
		consumer:   newLabels(consumer...),
	}
	for i := range r.outcomes {
		r.outcomes[i] = newLabels(append(consumer[:2:2], outcomeKey.String(bus.Outcome(i).String()))...)
	}
	return r
}

// newAttempt is part of the span's start, because samplers see it.
func newAttempt(number int) trace.SpanStartOption {
	return trace.WithAttributes(attemptKey.Int(number))
}

func (t *Telemetry) process(ctx context.Context, m *bus.Message, next bus.Handler) error {
	start := time.Now()
	forwards := m.Config != nil && m.Config.Forwards
	r := t.deliveries.get(deliveryKey{m.PayloadType, m.Consumer, forwards})
	ctx, span := t.startProcess(ctx, r, m)
	describeFlow(span, m, start)
	t.delivered(ctx, r, m, start)
	result := errPanicked
	defer func() { // a panic that no inner layer recovered goes on
		t.processed(ctx, span, r, m, start, result)
		span.End()
	}()
	if forwards {
		m = t.forwarded(ctx, m)
		ctx = bus.ContextWithMessage(ctx, m) // for consumers that read the message from the context
	}
	result = next(ctx, m)
	return result
}

// forwarded returns the message with the run's span in its headers, for a consumer that forwards
// it. The creation context stays in place.
func (t *Telemetry) forwarded(ctx context.Context, m *bus.Message) *bus.Message {
	fields := propagation.MapCarrier{}
	t.config.Propagator.Inject(ctx, fields)
	if len(fields) == 0 {
		return m
	}
	passed := *m
	passed.Headers = make(map[string]string, len(m.Headers)+len(fields))
	maps.Copy(passed.Headers, m.Headers)
	for field, value := range fields {
		passed.Headers[runPrefix+field] = value
	}
	return &passed
}

// startProcess starts the span of a run. It always links to the message's creation context, and to
// the span that scheduled it.
func (t *Telemetry) startProcess(ctx context.Context, r *deliveryRoute, m *bus.Message) (context.Context, trace.Span) {
	ctx = withoutSpan(ctx) // Run may have been called inside a span
	scheduling := schedulingContext(ctx, m.Headers)
	ctx, creation := t.propagator.extract(ctx, m.Headers)
	options := append(make([]trace.SpanStartOption, 0, 6), r.start...) // without another allocation
	options = append(options, t.attempts.get(m.Attempt))
	if !t.isChild(m, creation) {
		options = append(options, trace.WithNewRoot())
	}
	if creation.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: creation}))
	}
	if scheduling.IsValid() {
		options = append(options, trace.WithLinks(scheduleLink(scheduling)))
	}
	ctx, span := t.tracer.Start(ctx, r.name, options...)
	identify(span, m)
	if span.IsRecording() && m.CrashCount > 0 {
		span.SetAttributes(crashesKey.Int(m.CrashCount))
	}
	if span.IsRecording() && access.Mode(m) != "" {
		span.SetAttributes(modeKey.String(access.Mode(m)))
	}
	return ctx, span
}

// describeFlow sets how long the message has waited, if its consumer has a limit, a rate, keys or
// a circuit breaker.
func describeFlow(span trace.Span, m *bus.Message, start time.Time) {
	c := m.Config
	if c == nil ||
		c.GlobalConcurrency == 0 && c.Rate == 0 && c.Ordered == 0 && c.KeyConcurrency == 0 && !c.Fair && c.KeyRate == 0 && c.Breaker == nil ||
		!span.IsRecording() {
		return
	}
	if c.GlobalConcurrency > 0 {
		span.SetAttributes(limitNameKey.String(cmp.Or(c.SharedConcurrency, m.Consumer)))
	}
	if lag, ok := lagOf(m, start); ok {
		span.SetAttributes(lagKey.Float64(lag))
	}
}

// lagOf returns how many seconds ago a live message was due.
func lagOf(m *bus.Message, now time.Time) (lag float64, ok bool) {
	return seconds(now.Sub(m.AvailableAt)), access.Mode(m) == "" && !m.AvailableAt.IsZero()
}

// isChild reports whether a run belongs to the trace in which its message was created. Later runs
// get their own trace, so that the first does not grow with every retry. A run whose process was
// lost is not counted: its spans are lost, so the next run takes its place.
func (t *Telemetry) isChild(m *bus.Message, creation trace.SpanContext) bool {
	switch {
	case !creation.IsValid():
		return false
	case !creation.IsSampled():
		// A root span would be sampled again, and show a trace without its beginning.
		return true
	case t.config.LinkOnly, access.Mode(m) != "":
		return false
	case m.Config != nil && m.Config.Forwards: // forwarding is one more hop
		return true
	}
	return m.Attempt == 1 && m.AvailableAt.Sub(m.CreatedAt) <= undelayed
}

// delivered measures the start of a run.
func (t *Telemetry) delivered(ctx context.Context, r *deliveryRoute, m *bus.Message, now time.Time) {
	t.metrics.consumed.Add(ctx, 1, r.process.add...)
	t.metrics.active.Add(ctx, 1, r.consumer.add...)
	if lag, ok := lagOf(m, now); ok {
		t.metrics.lag.Record(ctx, lag, r.consumer.record...)
	}
}

// processed describes and measures the end of a run.
func (t *Telemetry) processed(ctx context.Context, span trace.Span, r *deliveryRoute, m *bus.Message, start time.Time, err error) {
	took := time.Since(start)
	// The processor treats unknown outcomes as Errored, too.
	verdict := bus.OutcomeOf(err)
	outcome := min(verdict.Outcome, bus.Errored)
	process, labels := r.process, r.outcomes[outcome]
	if failed(outcome) {
		failure := errorTypeKey.String(errorType(overtime(m, askable(verdict), took)))
		process = newLabels(append(r.attributes, failure)...)
		span.SetStatus(codes.Error, "")
		span.SetAttributes(failure)
	}
	if span.IsRecording() {
		span.SetAttributes(outcomeKey.String(outcome.String()))
	}
	t.metrics.active.Add(ctx, -1, r.consumer.add...)
	t.metrics.running.Record(ctx, took.Seconds(), process.record...)
	t.metrics.settled.Add(ctx, 1, labels.add...)
	t.metrics.attempts.Record(ctx, int64(m.Attempt), labels.record...)
	if (outcome == bus.Discarded || outcome == bus.Poisoned) && errors.Is(askable(verdict), bus.ErrExpired) {
		t.metrics.late.Add(ctx, 1, r.consumer.add...)
	}
	gone := outcome == bus.Done || outcome == bus.Discarded || outcome == bus.Poisoned
	if gone && access.Mode(m) == "" && !m.CreatedAt.IsZero() {
		t.metrics.endToEnd.Record(ctx, seconds(time.Since(m.CreatedAt)), r.consumer.record...)
	}
}

// askable returns the error behind an outcome. None of its methods panics.
func askable(v bus.OutcomeError) error {
	if v.Outcome == bus.Errored {
		return v.Err
	}
	return &v
}

// failed reports whether an outcome is an error. A consumer that discards, snoozes or is
// interrupted has not failed.
func failed(o bus.Outcome) bool {
	switch o {
	case bus.Done, bus.Discarded, bus.Snoozed, bus.Released:
		return false
	}
	return true
}

// seconds is a duration between the database's clock and this process's, which may be behind.
func seconds(d time.Duration) float64 { return max(d, 0).Seconds() }
