package otel_test

import (
	"context"
	"maps"
	"strings"
	"sync/atomic"
	"testing"

	otelapi "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
)

// These tests need no SDK: without one the API passes a span context on as it
// is, which is all there is to see in the headers of a message.

const otherTraceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// inSpan returns a context in the span that a traceparent names.
func inSpan(t *testing.T, traceparent, tracestate string) context.Context {
	t.Helper()
	ctx := propagation.TraceContext{}.Extract(t.Context(), propagation.MapCarrier{"traceparent": traceparent, "tracestate": tracestate})
	if !trace.SpanContextFromContext(ctx).IsValid() {
		t.Fatalf("traceparent %q is not valid", traceparent)
	}
	return ctx
}

func newTelemetry(t *testing.T, propagator propagation.TextMapPropagator) *amotel.Telemetry {
	t.Helper()
	telemetry, err := amotel.NewTelemetry(amotel.TelemetryConfig{Propagator: propagator})
	if err != nil {
		t.Fatal(err)
	}
	return telemetry
}

// produced sends messages with the given headers and returns what is stored.
func produced(t *testing.T, ctx context.Context, propagator propagation.TextMapPropagator,
	headers ...map[string]string) []map[string]string {
	t.Helper()
	var batch []*bus.Message
	for _, h := range headers {
		batch = append(batch, &bus.Message{PayloadType: "order.placed", Headers: h})
	}
	err := newTelemetry(t, propagator).Produce()(func(context.Context, *bus.Batch) error { return nil })(ctx, &bus.Batch{Messages: batch})
	if err != nil {
		t.Fatalf("produce: %v", err)
	}
	stored := make([]map[string]string, len(batch))
	for i, m := range batch {
		if err := limits.CheckHeaders(m.Headers); err != nil {
			t.Errorf("headers: got %v, want some that can be stored", err)
		}
		stored[i] = m.Headers
	}
	return stored
}

func TestHeadersOfProducedMessages(t *testing.T) {
	t.Parallel()
	long := "k=" + strings.Repeat("x", 254) + ",l=" + strings.Repeat("x", 253)
	tooLong := long + "x"
	both := propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	tests := []struct {
		name       string
		propagator propagation.TextMapPropagator
		tracestate string
		baggage    string
		headers    map[string]string
		want       map[string]string
	}{
		{"a message without headers is given the context", propagation.TraceContext{}, "", "", nil,
			map[string]string{"traceparent": traceparent}},
		{"headers of the application stay", propagation.TraceContext{}, "", "", map[string]string{"tenant": "acme"},
			map[string]string{"traceparent": traceparent, "tenant": "acme"}},
		{"a tracestate travels along", propagation.TraceContext{}, "vendor=1", "", nil,
			map[string]string{"traceparent": traceparent, "tracestate": "vendor=1"}},
		{"a tracestate of 512 bytes travels along", propagation.TraceContext{}, long, "", nil,
			map[string]string{"traceparent": traceparent, "tracestate": long}},
		{"a tracestate of 513 bytes is dropped", propagation.TraceContext{}, tooLong, "", nil,
			map[string]string{"traceparent": traceparent}},
		{"baggage travels along with a propagator for it", both, "", "user=1", nil,
			map[string]string{"traceparent": traceparent, "baggage": "user=1"}},
		{"baggage stays behind without one", propagation.TraceContext{}, "", "user=1", nil,
			map[string]string{"traceparent": traceparent}},
		{"a creation context is not overwritten", both, "vendor=1", "user=1", map[string]string{"traceparent": otherTraceparent},
			map[string]string{"traceparent": otherTraceparent}},
		{"baggage of the application is not overwritten", both, "", "user=1", map[string]string{"baggage": "user=2"},
			map[string]string{"traceparent": traceparent, "baggage": "user=2"}},
		{"what is no creation context is replaced as a whole", propagation.TraceContext{}, "", "",
			map[string]string{"traceparent": "00-nonsense", "tracestate": "stale=1"},
			map[string]string{"traceparent": traceparent}},
		{"a name and text that cannot be stored are left out", hostile{}, "", "", nil, map[string]string{"good": "text"}},
		{"a propagator without fields adds nothing", propagation.NewCompositeTextMapPropagator(), "", "", nil, nil},
		{"without a propagator it is W3C trace context", nil, "", "", nil, map[string]string{"traceparent": traceparent}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ctx := inSpan(t, traceparent, test.tracestate)
			if test.baggage != "" {
				b, err := baggage.Parse(test.baggage)
				if err != nil {
					t.Fatal(err)
				}
				ctx = baggage.ContextWithBaggage(ctx, b)
			}
			given := maps.Clone(test.headers)
			if got := produced(t, ctx, test.propagator, test.headers)[0]; !maps.Equal(got, test.want) {
				t.Errorf("single: got %v, want %v", got, test.want)
			}
			if !maps.Equal(test.headers, given) {
				t.Errorf("the caller's map: got %v, want it untouched", test.headers)
			}
			for i, got := range produced(t, ctx, test.propagator, test.headers, test.headers) { // a map that is shared
				if !maps.Equal(got, test.want) {
					t.Errorf("message %d of a batch: got %v, want %v", i, got, test.want)
				}
			}
		})
	}
}

// hostile writes headers that a text column cannot store.
type hostile struct{ propagation.TraceContext }

func (hostile) Inject(_ context.Context, c propagation.TextMapCarrier) {
	c.Set("", "no name")
	c.Set("nul", "a\x00b")
	c.Set("utf8", "\xff")
	c.Set("n\x00ul", "text")
	c.Set("good", "text")
}

func TestTelemetryLeavesRoomForTheApplication(t *testing.T) {
	t.Parallel()
	ctx := inSpan(t, traceparent, "vendor=1")
	var members []string
	for range 60 {
		members = append(members, "k"+string(rune('a'+len(members)%26))+strings.Repeat("x", len(members))+"="+strings.Repeat("v", 100))
	}
	b, err := baggage.Parse(strings.Join(members, ","))
	if err != nil {
		t.Fatal(err)
	}
	ctx = baggage.ContextWithBaggage(ctx, b)
	both := propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	got := produced(t, ctx, both, nil)[0]
	if got["traceparent"] != traceparent || got["baggage"] != "" {
		t.Errorf("6 KiB of baggage: got %d bytes of it and traceparent %q, want none, and the trace context", len(got["baggage"]),
			got["traceparent"])
	}
	full := map[string]string{"all": strings.Repeat("x", limits.Headers-len("all")-20)}
	if got := produced(t, ctx, both, full)[0]; got["traceparent"] != "" || got["tracestate"] != "vendor=1" {
		t.Errorf("headers with 20 bytes left: got %q and %q, want only what fits", got["traceparent"], got["tracestate"])
	}
}

func TestHeadersOfASchedule(t *testing.T) {
	t.Parallel()
	telemetry := newTelemetry(t, nil)
	if got := telemetry.Headers(t.Context()); got != nil {
		t.Errorf("outside of a span: got %v, want none", got)
	}
	want := map[string]string{"asyncmonolith-scheduled-by": traceparent}
	if got := telemetry.Headers(inSpan(t, traceparent, "vendor=1")); !maps.Equal(got, want) {
		t.Errorf("in a span: got %v, want %v", got, want)
	}
}

func TestQuietContext(t *testing.T) {
	t.Parallel()
	one, two := trace.SpanContextFromContext(amotel.Quiet(t.Context())), trace.SpanContextFromContext(amotel.Quiet(t.Context()))
	if !one.IsValid() || one.IsSampled() || !one.IsRemote() {
		t.Errorf("span context: got %+v, want a valid one from elsewhere that is not sampled", one)
	}
	if one.TraceID() == two.TraceID() {
		t.Errorf("two of them: got trace %s twice, want two traces", one.TraceID())
	}
}

func TestWhateverIsInTheHeadersTheMessageRuns(t *testing.T) {
	t.Parallel()
	tests := map[string]map[string]string{
		"no headers":             nil,
		"an empty traceparent":   {"traceparent": ""},
		"a broken traceparent":   {"traceparent": "00-xyz"},
		"a traceparent of zeros": {"traceparent": "00-00000000000000000000000000000000-0000000000000000-00"},
		"a traceparent of 7 KiB": {"traceparent": strings.Repeat("0", 7<<10)},
		"an unknown version":     {"traceparent": "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		"a tracestate of 7 KiB":  {"traceparent": traceparent, "tracestate": strings.Repeat("a=b,", 7<<8)},
		"a tracestate of 513 bytes": {"traceparent": traceparent,
			"tracestate": "k=" + strings.Repeat("x", 254) + ",l=" + strings.Repeat("x", 254)},
		"a tracestate of nonsense": {"traceparent": traceparent, "tracestate": "\x01=,,=;"},
		"baggage of nonsense":      {"baggage": "=;,\x7f%zz"},
		"a broken scheduling span": {"asyncmonolith-scheduled-by": "00-xyz"},
	}
	for name, headers := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			telemetry := newTelemetry(t, propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}))
			given := maps.Clone(headers)
			runs := 0
			handler := telemetry.Consume()(func(ctx context.Context, m *bus.Message) error {
				runs++
				if state := trace.SpanContextFromContext(ctx).TraceState(); len(state.String()) > 512 {
					t.Errorf("tracestate: got %d bytes, want at most 512", len(state.String()))
				}
				return nil
			})
			m := &bus.Message{PayloadType: "order.placed", Consumer: "c", Attempt: 1, Headers: headers}
			if err := handler(t.Context(), m); err != nil || runs != 1 {
				t.Errorf("consume: got %v after %d runs, want one run", err, runs)
			}
			if !maps.Equal(m.Headers, given) {
				t.Errorf("headers: got %v, want them untouched", m.Headers)
			}
			produced(t, t.Context(), nil, headers, headers)
		})
	}
}

// TestPropagatorThatPanics is not parallel: it replaces the error handler.
func TestPropagatorThatPanics(t *testing.T) {
	var told atomic.Int64
	otelapi.SetErrorHandler(otelapi.ErrorHandlerFunc(func(err error) {
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("error: got %q, want nothing out of the headers", err)
		}
		told.Add(1)
	}))
	telemetry := newTelemetry(t, panicking{})
	runs := 0
	handler := telemetry.Consume()(func(context.Context, *bus.Message) error { runs++; return nil })
	err := handler(t.Context(), &bus.Message{PayloadType: "order.placed", Headers: map[string]string{"traceparent": "secret"}})
	if err != nil || runs != 1 || told.Load() != 1 {
		t.Errorf("consume: got %v, %d runs, %d errors reported, want one run and one report", err, runs, told.Load())
	}
}

// panicking cannot read what it is given.
type panicking struct{ propagation.TraceContext }

func (panicking) Extract(_ context.Context, c propagation.TextMapCarrier) context.Context {
	panic("cannot read " + c.Get("traceparent"))
}

// TestPropagatorRegisteredLater is not parallel: it registers a propagator.
func TestPropagatorRegisteredLater(t *testing.T) {
	telemetry := newTelemetry(t, nil)
	ctx := inSpan(t, traceparent, "")
	send := func() map[string]string {
		m := &bus.Message{PayloadType: "order.placed"}
		if err := telemetry.Produce()(func(context.Context, *bus.Batch) error { return nil })(ctx,
			&bus.Batch{Messages: []*bus.Message{m}}); err != nil {
			t.Fatal(err)
		}
		return m.Headers
	}
	if got := send(); got["traceparent"] != traceparent {
		t.Errorf("none is registered: got headers %v, want W3C trace context", got)
	}
	otelapi.SetTextMapPropagator(hostile{})
	defer otelapi.SetTextMapPropagator(propagation.TraceContext{})
	if got := send(); got["good"] != "text" || got["traceparent"] != "" {
		t.Errorf("one is registered: got headers %v, want what it writes", got)
	}
}
