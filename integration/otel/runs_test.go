package otel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// observed runs one message through layers of the consume chain below the
// telemetry, and returns its span and the error.type of its duration.
func observed(t *testing.T, m *bus.Message, handler bus.Handler, layers ...bus.Middleware) (tracetest.SpanStub, string) {
	t.Helper()
	spans, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	telemetry := must(amotel.NewTelemetry(amotel.TelemetryConfig{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans), sdktrace.WithSampler(sdktrace.AlwaysSample())),
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
		Propagator:     propagation.TraceContext{},
	}))(t)
	func() {
		defer func() { _ = recover() }()
		_ = telemetry.Consume()(bus.Compose(handler, layers...))(t.Context(), m)
	}()
	stubs := spans.GetSpans()
	if len(stubs) != 1 {
		t.Fatalf("spans: got %d, want one", len(stubs))
	}
	points := find[metricdata.Histogram[float64]](t, collect(t, reader), "messaging.process.duration").DataPoints
	if len(points) != 1 {
		t.Fatalf("measurements of the duration: got %d, want one", len(points))
	}
	value, _ := points[0].Attributes.Value("error.type")
	return stubs[0], value.AsString()
}

func delivery() *bus.Message {
	return &bus.Message{PayloadType: "order.placed", Consumer: "a", Attempt: 1,
		Config: &bus.ConsumerConfig{Timeout: time.Second, MaxAttempts: 1}}
}

func valueOf(attributes []attribute.KeyValue, key attribute.Key) string {
	for _, a := range attributes {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}

// coded is an error that names itself.
type coded struct{ code string }

func (c coded) Error() string     { return "code" }
func (c coded) ErrorType() string { return c.code }

// broken is an error whose methods panic.
type broken struct{ inner *errCard }

func (b *broken) Error() string     { return b.inner.number }
func (b *broken) ErrorType() string { return b.inner.number }

func TestErrorTypes(t *testing.T) {
	t.Parallel()
	card := &errCard{"4111"}
	decode := bus.Consume("a", func(context.Context, order) error { return nil }).
		Consume(t.Context(), bus.JSON{}, []byte(`{"id":7}`))
	if _, ok := errors.AsType[*json.UnmarshalTypeError](decode); !ok {
		t.Fatalf("decode: got %v, want a payload that does not fit", decode)
	}
	tests := []struct {
		name string
		err  error
		want string
	}{
		{"a panic", isolate.NewPanic("no"), "asyncmonolith.handler_panic"},
		{"a panic with an error", isolate.NewPanic(card), "asyncmonolith.handler_panic"},
		{"Goexit", isolate.ErrGoexit, "asyncmonolith.handler_goexit"},
		{"an abandoned consumer", bus.ErrAbandoned, "asyncmonolith.handler_abandoned"},
		{"the consumer timeout", fmt.Errorf("call: %w", bus.ErrTimeout), "asyncmonolith.handler_timeout"},
		{"another deadline", fmt.Errorf("call: %w", context.DeadlineExceeded), "context.deadlineExceededError"},
		{"a lost lease", bus.ErrLeaseLost, "asyncmonolith.lease_lost"},
		{"a stop", bus.ErrStopping, "asyncmonolith.stopping"},
		{"a payload that does not fit", decode, "asyncmonolith.decode"},
		{"a payload nobody consumes", bus.ErrNoConsumer, "asyncmonolith.no_consumer"},
		{"a pointer", bus.ErrInvalidPayload, "asyncmonolith.bad_payload"},
		{"a large payload", bus.ErrTooLarge, "asyncmonolith.too_large"},
		{"bad text", bus.ErrInvalidText, "asyncmonolith.bad_text"},
		{"a bad option", bus.ErrInvalidOption, "asyncmonolith.bad_option"},
		{"a permanent error", bus.Permanent(card), "asyncmonolith.permanent"},
		{"a wrapped permanent error", fmt.Errorf("pay: %w", bus.Permanent(card)), "asyncmonolith.permanent"},
		{"a permanent error that names itself", bus.Permanent(coded{"card_expired"}), "card_expired"},
		{"an error that names itself", fmt.Errorf("pay: %w", coded{"card_expired"}), "card_expired"},
		{"an error with a type", card, "*otel_test.errCard"},
		{"a wrapped one", fmt.Errorf("pay: %w", card), "*otel_test.errCard"},
		{"one to retry after a while", bus.RetryAfter(time.Second, fmt.Errorf("pay: %w", card)), "*otel_test.errCard"},
		{"one of several", errors.Join(fmt.Errorf("pay: %w and %w", card, fs.ErrExist), fs.ErrExist), "*otel_test.errCard"},
		{"a type that wraps", &fs.PathError{Op: "open", Path: "4111", Err: card}, "*fs.PathError"},
		{"a verdict without an error", &bus.OutcomeError{Outcome: bus.Condemned, Reason: "tenant closed"}, "_OTHER"},
		{"an outcome nobody knows", &bus.OutcomeError{Outcome: 99, Err: card}, "*otel_test.errCard"},
		{"an error that panics", &broken{}, "_OTHER"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			fails := func(context.Context, *bus.Message) error { return test.err }
			span, measured := observed(t, delivery(), fails)
			if got := valueOf(span.Attributes, "error.type"); got != test.want || measured != test.want {
				t.Errorf("error.type: got %q on the span and %q on the duration, want %q on both", got, measured, test.want)
			}
			if span.Status.Code != codes.Error || span.Status.Description != "" {
				t.Errorf("status: got %+v, want an error without a text", span.Status)
			}
			if len(span.Events) > 0 {
				t.Errorf("events: got %v, want none", span.Events)
			}
		})
	}
}

func TestErrorTypesThroughTheWholeChain(t *testing.T) {
	t.Parallel()
	chain := middleware.Default(middleware.Options{OnPoison: func(context.Context, *bus.Message, string, error) {}})
	tests := []struct {
		name    string
		timeout time.Duration
		handler bus.Handler
		want    string
	}{
		{"a panic", time.Minute, func(context.Context, *bus.Message) error { panic("4111") }, "asyncmonolith.handler_panic"},
		{"a permanent error", time.Minute, func(context.Context, *bus.Message) error { return bus.Permanent(errors.New("4111")) },
			"asyncmonolith.permanent"},
		{"the last attempt", time.Minute, func(context.Context, *bus.Message) error { return fmt.Errorf("pay: %w", &errCard{"4111"}) },
			"*otel_test.errCard"},
		{"the consumer timeout", 20 * time.Millisecond, func(ctx context.Context, _ *bus.Message) error {
			<-ctx.Done()
			return fmt.Errorf("call: %w", ctx.Err())
		}, "asyncmonolith.handler_timeout"},
		{"a shorter deadline of the consumer's own", time.Minute, func(ctx context.Context, _ *bus.Message) error {
			ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			<-ctx.Done()
			return ctx.Err()
		}, "context.deadlineExceededError"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := delivery()
			m.Config.Timeout = test.timeout
			span, measured := observed(t, m, test.handler, chain...)
			if got := valueOf(span.Attributes, "error.type"); got != test.want || measured != test.want {
				t.Errorf("error.type: got %q on the span and %q on the duration, want %q", got, measured, test.want)
			}
			if got := valueOf(span.Attributes, "asyncmonolith.message.outcome"); got != "poisoned" {
				t.Errorf("outcome: got %q, want poisoned", got)
			}
		})
	}
}

func TestAnUnrecoveredPanic(t *testing.T) {
	t.Parallel()
	span, measured := observed(t, delivery(), func(context.Context, *bus.Message) error { panic("4111") })
	if got := valueOf(span.Attributes, "error.type"); got != "asyncmonolith.handler_panic" || measured != got {
		t.Errorf("error.type: got %q on the span and %q on the duration, want the panic", got, measured)
	}
	if span.EndTime.IsZero() || valueOf(span.Attributes, "asyncmonolith.message.outcome") != "unclassified" {
		t.Errorf("span: got %+v, want it ended, as unclassified", span.Attributes)
	}
}

func TestOutcomesThatAreNoErrors(t *testing.T) {
	t.Parallel()
	tests := map[string]error{
		"done":      nil,
		"discarded": bus.Discard(&errCard{"4111"}),
		"snoozed":   &bus.OutcomeError{Outcome: bus.Snoozed, Delay: time.Second, Err: errors.New("a conflict in the database")},
		"released":  &bus.OutcomeError{Outcome: bus.Released, Err: bus.ErrLeaseLost},
	}
	for want, err := range tests {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			span, measured := observed(t, delivery(), func(context.Context, *bus.Message) error { return err })
			if got := valueOf(span.Attributes, "asyncmonolith.message.outcome"); got != want {
				t.Errorf("outcome: got %q, want %q", got, want)
			}
			if got := valueOf(span.Attributes, "error.type"); span.Status.Code != codes.Unset || got != "" || measured != "" {
				t.Errorf("got status %v and error.type %q and %q, want none", span.Status.Code, got, measured)
			}
		})
	}
}

// TestParentOfARun tells which runs belong to the trace of their message's
// creation.
func TestParentOfARun(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	const unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	tests := []struct {
		name        string
		traceparent string
		change      func(*bus.Message)
		want        bool
		attributes  string
	}{
		{"first delivery", elsewhere, func(*bus.Message) {}, true, ""},
		{"due a little later", elsewhere, func(m *bus.Message) { m.AvailableAt = created.Add(10 * time.Millisecond) }, true, ""},
		{"due before it was created", elsewhere, func(m *bus.Message) { m.AvailableAt = created.Add(-time.Hour) }, true, ""},
		{"delayed", elsewhere, func(m *bus.Message) { m.AvailableAt = created.Add(11 * time.Millisecond) }, false, ""},
		{"second attempt", elsewhere, func(m *bus.Message) { m.Attempt = 2 }, false, "2"},
		{"hundredth attempt", elsewhere, func(m *bus.Message) { m.Attempt = 100 }, false, "100"},
		{"after a crash", elsewhere, func(m *bus.Message) { m.CrashCount = 1 }, true, "1 1"},
		{"replayed", elsewhere, func(m *bus.Message) { m.Event = &bus.Event{Replay: true} }, false, "1 replay"},
		{"caught up", elsewhere, func(m *bus.Message) { m.Event = &bus.Event{Backlog: true} }, false, "1 catchup"},
		{"without headers", "", func(*bus.Message) {}, false, ""},
		{"not sampled: a root would be sampled anew", unsampled, func(m *bus.Message) { m.Attempt = 2 }, true, "2"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := delivery()
			m.CreatedAt, m.AvailableAt = created, created
			if test.traceparent != "" {
				m.Headers = map[string]string{"traceparent": test.traceparent}
			}
			test.change(m)
			span, _ := observed(t, m, func(context.Context, *bus.Message) error { return nil })
			if got := span.Parent.IsValid(); got != test.want {
				t.Errorf("child of the creation: got %v, want %v", got, test.want)
			}
			if links := len(span.Links); test.traceparent != "" &&
				(links != 1 || span.Links[0].SpanContext.SpanID().String() != "b7ad6b7169203331") || test.traceparent == "" && links != 0 {
				t.Errorf("links: got %v, want one to the creation, if there is one", span.Links)
			}
			want := test.attributes
			if want == "" {
				want = "1"
			}
			got := valueOf(span.Attributes, "asyncmonolith.message.attempt")
			for _, key := range []attribute.Key{"asyncmonolith.message.crashes", "asyncmonolith.message.mode"} {
				if value := valueOf(span.Attributes, key); value != "" {
					got += " " + value
				}
			}
			if got != want {
				t.Errorf("attempt, crashes and mode: got %q, want %q", got, want)
			}
		})
	}
}

// TestSpanAroundRun calls the chain in a span, as a Run that was called in one
// does: it is neither the parent of a run nor its message's creation.
func TestSpanAroundRun(t *testing.T) {
	t.Parallel()
	for _, headers := range []map[string]string{nil, {"tenant": "acme"}, {"traceparent": "00-xyz"}} {
		spans := tracetest.NewInMemoryExporter()
		tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
		telemetry := must(amotel.NewTelemetry(amotel.TelemetryConfig{TracerProvider: tracers, Propagator: propagation.TraceContext{}}))(t)
		ctx, around := tracers.Tracer("app").Start(t.Context(), "start of the application")
		m := delivery()
		m.Headers = headers
		check(t, telemetry.Consume()(func(context.Context, *bus.Message) error { return nil })(ctx, m))
		around.End()
		if run := spans.GetSpans()[0]; run.Parent.IsValid() || len(run.Links) > 0 {
			t.Errorf("run of a message with headers %v: got parent %s and links %v, want neither", headers, run.Parent.SpanID(), run.Links)
		}
	}
}

// attributesAtStart is a sampler that remembers what it was shown.
type attributesAtStart struct{ seen []attribute.KeyValue }

func (s *attributesAtStart) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	s.seen = p.Attributes
	return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
}

func (s *attributesAtStart) Description() string { return "attributesAtStart" }

func TestSamplersSeeTheAttributes(t *testing.T) {
	t.Parallel()
	sampler := &attributesAtStart{}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler))
	telemetry := must(amotel.NewTelemetry(amotel.TelemetryConfig{TracerProvider: tracers}))(t)
	check(t, telemetry.Consume()(func(context.Context, *bus.Message) error { return nil })(t.Context(), delivery()))
	want := map[attribute.Key]string{
		"messaging.system": "asyncmonolith", "messaging.operation.name": "process", "messaging.operation.type": "process",
		"messaging.destination.name": "order.placed", "messaging.consumer.group.name": "a", "asyncmonolith.message.attempt": "1",
	}
	for key, value := range want {
		if got := valueOf(sampler.seen, key); got != value {
			t.Errorf("%s at the start of the span: got %q, want %q", key, got, value)
		}
	}
}

// TestNoTracesOfWhatIsNotSampled has a producer that is sampled out, and a
// consumer which would sample every trace that begins there.
func TestNoTracesOfWhatIsNotSampled(t *testing.T) {
	t.Parallel()
	consumers := []bus.Consumer{script("a", &errCard{"4111"}), refunds("r")}
	inShop(t, settings{sampler: sdktrace.ParentBased(sdktrace.AlwaysSample()), consumers: consumers}, func(p *shop) {
		silent := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
		out := must(amotel.NewTelemetry(amotel.TelemetryConfig{TracerProvider: silent, Propagator: propagation.TraceContext{}}))(p)
		producer := must(outbox.NewProducer(p.registry, outbox.ProducerConfig{Telemetry: out.Produce()}))(p)
		ctx, span := silent.Tracer("app").Start(p.ctx, "app")
		defer span.End()
		_, err := producer.ProduceMany(ctx, p.db, outbox.Item{Payload: order{"1"}}, outbox.Item{Payload: refund{"1"}})
		check(p, err)
		_, err = producer.Produce(ctx, p.db, refund{"2"}, outbox.Delay(time.Minute))
		check(p, err)
		if n := p.count("SELECT count(*) FROM consumer_messages WHERE headers LIKE '%-00\"}'"); n != 3 {
			p.Errorf("messages that say that they are not sampled: got %d, want 3", n)
		}
		p.process("first deliveries, a retry and a delayed message are consumed", p.empty)
		if got := p.spans(); got != "" {
			p.Errorf("spans: got\n%s\nwant none", got)
		}
	})
}

// TestSampledProducerAndRatio checks the other half: what is sampled where it is
// produced is sampled where it is consumed, whatever that process's own ratio.
func TestSampledProducerAndRatio(t *testing.T) {
	t.Parallel()
	inShop(t, settings{sampler: sdktrace.ParentBased(sdktrace.NeverSample()), consumers: []bus.Consumer{script("a")}}, func(p *shop) {
		check(p, p.produce(p.ctx, order{"1"}, outbox.Header("traceparent", elsewhere)))
		p.process("the message is consumed", p.empty)
		if n := len(p.recorder.Ended()); n != 1 {
			p.Errorf("spans: got %d, want that of the run", n)
		}
	})
}

// TestHostileHeaders stores what hostile hands may write, and consumes it.
func TestHostileHeaders(t *testing.T) {
	t.Parallel()
	inShop(t, settings{consumers: []bus.Consumer{script("a")}}, func(p *shop) {
		headers := []string{
			"", "x", "00", "00-xyz-xyz-01", elsewhere + "-extra", "01-" + elsewhere[3:] + "-extra", "ff-" + elsewhere[3:],
			"00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01",
			"\u2603", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff",
		}
		for _, h := range headers {
			check(p, p.produce(p.ctx, order{"1"}, outbox.Header("traceparent", h), outbox.Header("tracestate", "\x01=,"),
				outbox.Header("baggage", ";;%zz")))
			// Written by somebody who does not use the library.
			text := must(json.Marshal(map[string]string{"traceparent": h, "tracestate": "=", "asyncmonolith-scheduled-by": h}))(p)
			_, err := p.db.NewRaw("UPDATE consumer_messages SET headers = ? WHERE id = (SELECT max(id) FROM consumer_messages)",
				string(text)).Exec(p.ctx)
			check(p, err)
		}
		p.process("every message is consumed", p.empty)
		if n := p.count("SELECT count(*) FROM poisoned_messages"); n != 0 {
			p.Errorf("poisoned messages: got %d, want none", n)
		}
		done := 0
		for _, s := range p.recorder.Ended() {
			if valueOf(s.Attributes(), "asyncmonolith.message.outcome") == "done" {
				done++
			}
		}
		if done != len(headers) {
			p.Errorf("runs that were done: got %d, want %d", done, len(headers))
		}
	})
}
