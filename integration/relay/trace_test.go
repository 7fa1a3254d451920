package relay_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/attribute"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"

	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// traced is the telemetry of a service, and what it has recorded.
type traced struct {
	*amotel.Telemetry
	spans *tracetest.SpanRecorder
	meter *sdkmetric.ManualReader
}

func newTraced(t *testing.T) traced {
	t.Helper()
	tr := traced{spans: tracetest.NewSpanRecorder(), meter: sdkmetric.NewManualReader()}
	tr.Telemetry = testapp.Must[*amotel.Telemetry](t)(amotel.NewTelemetry(amotel.TelemetryConfig{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(tr.spans)),
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(tr.meter)),
	}))
	return tr
}

// config is that of a processor that is traced.
func (tr traced) config() outbox.ProcessorConfig {
	config := testapp.Fast()
	config.Middleware = middleware.Default(middleware.Options{Telemetry: tr.Consume()})
	return config
}

func (tr traced) producer(a *app) *outbox.Producer {
	a.Helper()
	return testapp.Must[*outbox.Producer](a.T)(outbox.NewProducer(a.Registry, outbox.ProducerConfig{Telemetry: tr.Produce()}))
}

// TestOneTraceOverBothServices: from the produce in one service to the handler in the other each
// span is a child of the one before, in binary and in structured mode; also if the broker was away
// at first. No key or payload is among what is recorded.
func TestOneTraceOverBothServices(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]relay.Config{"binary": {}, "structured": {Structured: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				one, two := newTraced(t), newTraced(t)
				b := newBroker()
				tries := 0
				b.failWith(func(broker.Record) error {
					if tries++; tries == 1 {
						return broker.ErrNoDestination
					}
					return nil
				})
				sender := testapp.New(t, testdb.SQLite(t), publishesWith(b, config))
				sender.Producer = one.producer(sender)
				receiver := inbox.NewReceiver("from-shop", b.subscribe(), inbox.Accept[order]())
				a := testapp.New(t, db, testapp.Consumed("ship"), receiver.Consumer())
				runner := testapp.Must[*inbox.Runner](t)(inbox.NewRunner(db, a.Registry, two.producer(a),
					inbox.RunnerConfig{Telemetry: two.Receive()}, receiver))
				s := &service{app: a, runner: runner}
				s.run()
				s.Start(two.config())
				sender.Produce(order{ID: "secret-payload"}, outbox.OrderingKey("secret-key"))
				sender.Start(one.config())
				testapp.Eventually(t, "it is consumed", func() bool { return s.stats().Accepted == 1 && s.Empty() && sender.Empty() })
				s.stop()
				checkTrace(t, one, two, b.all()[0])
			})
		})
	}
}

// span waits for a span, and returns the last one of a name that begins so.
func (tr traced) span(t *testing.T, prefix string) (found sdktrace.ReadOnlySpan) {
	t.Helper()
	testapp.Eventually(t, "a span "+prefix, func() bool {
		for _, span := range tr.spans.Ended() {
			if strings.HasPrefix(span.Name(), prefix) {
				found = span
			}
		}
		return found != nil
	})
	return found
}

func checkTrace(t *testing.T, one, two traced, record broker.Record) {
	t.Helper()
	created, published, consumed := one.span(t, "send "), one.span(t, "publish "), two.span(t, "process ")
	chain := []sdktrace.ReadOnlySpan{created, published, consumed}
	for i, span := range chain[1:] {
		if parent := span.Parent(); parent.TraceID() != created.SpanContext().TraceID() || parent.SpanID() != chain[i].SpanContext().SpanID() {
			t.Errorf("%s: got parent %s of trace %s, want %s of %s", span.Name(), parent.SpanID(), parent.TraceID(),
				chain[i].SpanContext().SpanID(), created.SpanContext().TraceID())
		}
	}
	if kind := published.SpanKind(); kind != trace.SpanKindProducer {
		t.Errorf("%s: got a span of a %s, want of a producer", published.Name(), kind)
	}
	received := two.span(t, "receive from-shop")
	if links := received.Links(); len(links) != 1 || links[0].SpanContext.SpanID() != published.SpanContext().SpanID() {
		t.Errorf("receive: got links %+v, want one to what published", links)
	}
	said := record.Headers["traceparent"] + " " + record.Attributes["traceparent"] + string(record.Body)
	for _, span := range chain[:2] {
		if !strings.Contains(said, span.SpanContext().SpanID().String()) {
			t.Errorf("record: got %s, want %s in it", said, span.Name())
		}
	}
	for _, span := range append(one.spans.Ended(), two.spans.Ended()...) {
		if text := fmt.Sprintf("%s %+v %+v %+v", span.Name(), span.Attributes(), span.Events(), span.Links()); strings.Contains(text, "secret") {
			t.Errorf("span: got %s, want no key or payload in it", text)
		}
	}
}

// TestReceiversAreShown: what arrives, what is parked, and why nothing is fetched.
func TestReceiversAreShown(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		telemetry := newTraced(t)
		b := newBroker()
		late := event("1", order{ID: "secret"})
		late.Attributes["time"] = time.Now().Add(-time.Hour).Format(time.RFC3339)
		b.put(broker.Record{Body: []byte("secret")}, event("1", order{ID: "secret"}), late)
		s := receives(t, db, inbox.NewReceiver("from-shop", b.subscribe(), inbox.Accept[order](), inbox.MaxBacklog(1)),
			testapp.Consumed("one"), testapp.Consumed("two"))
		s.run()
		testapp.Eventually(t, "all arrived", func() bool { return s.stats().Duplicates == 1 })
		b.put(event("2", order{ID: "2"}))
		testapp.Eventually(t, "it is paused", func() bool { return s.stats().Paused != "" })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- telemetry.Observe(ctx, s.runner, 10*time.Millisecond) }()
		defer func() { cancel(); <-done }()
		var got map[string]float64
		testapp.Eventually(t, "it is shown", func() bool { got = telemetry.points(t); return len(got) > 0 })
		for name, want := range map[string]float64{"receiver.records new": 1, "receiver.records duplicate": 1, "receiver.records parked": 1,
			"receiver.records unknown": 0, "receiver.paused ": 1, "inbox.records ": 2} {
			if value, ok := got[name]; !ok || value != want {
				t.Errorf("%s: got %v, want %v, of %v", name, value, want, got)
			}
		}
		if lag := got["receiver.lag "]; lag < 3590 || lag > 3700 {
			t.Errorf("lag: got %v, want an hour", lag)
		}
	})
}

// points are the values of gauges and counters, by name and outcome.
func (tr traced) points(t *testing.T) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	testapp.OK(t, tr.meter.Collect(t.Context(), &all))
	found := make(map[string]float64)
	put := func(name string, set attribute.Set, value float64) {
		if group, _ := set.Value("messaging.consumer.group.name"); group.AsString() != "from-shop" {
			t.Errorf("%s: got attributes %v, want the receiver", name, set.ToSlice())
		}
		outcome, _ := set.Value("asyncmonolith.record.outcome")
		found[strings.TrimPrefix(name, "asyncmonolith.")+" "+outcome.AsString()] = value
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					put(m.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					put(m.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					put(m.Name, p.Attributes, p.Value)
				}
			}
		}
	}
	return found
}
