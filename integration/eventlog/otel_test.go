package eventlog_test

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

func TestTelemetryOfTheEventLog(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewInMemoryExporter()
	reader := sdkmetric.NewManualReader()
	telemetry, err := amotel.NewTelemetry(amotel.TelemetryConfig{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)),
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
		Propagator:     propagation.TraceContext{},
	})
	if err != nil {
		t.Fatal(err)
	}
	l := setup{producer: outbox.ProducerConfig{Telemetry: telemetry.Produce()}}.newLedger(t, testdb.Postgres(t))
	r, err := projection.NewRunner(l.db, l.log, projection.RunnerConfig{Telemetry: telemetry.Apply()}, balances())
	if err != nil {
		t.Fatal(err)
	}
	l.append("account-1", eventlog.AnyVersion, moved{1})
	l.append("account-1", eventlog.AnyVersion, moved{2})
	l.catchUp(r)
	testapp.OK(t, r.Rebuild(l.ctx, "balances"))
	l.catchUp(r)
	var sends, applies []tracetest.SpanStub
	for _, span := range spans.GetSpans() {
		switch span.Name {
		case "send account.moved":
			sends = append(sends, span)
		case "apply balances":
			applies = append(applies, span)
		}
	}
	if len(sends) != 2 || len(applies) != 2 {
		t.Fatalf("spans: got %d sends and %d applies, want 2 each", len(sends), len(applies))
	}
	for i, span := range applies {
		attributes := attribute.NewSet(span.Attributes...)
		count, _ := attributes.Value("messaging.batch.message_count")
		mode, _ := attributes.Value("asyncmonolith.message.mode")
		if count.AsInt64() != 2 || len(span.Links) != 2 || span.Links[0].SpanContext.SpanID() != sends[0].SpanContext.SpanID() ||
			span.Parent.IsValid() || span.Status.Code != codes.Unset {
			t.Errorf("span of a batch: got %+v, want two events with links to their appends", span)
		}
		if (mode.AsString() == "replay") != (i == 1) {
			t.Errorf("mode of batch %d: got %q", i, mode.AsString())
		}
	}

	l.append("account-1", eventlog.AnyVersion, moved{3})
	ctx, cancel := context.WithCancel(l.ctx)
	done := make(chan error)
	go func() { done <- telemetry.Observe(ctx, r, time.Hour) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	gauge := func(name string) int64 {
		var all metricdata.ResourceMetrics
		testapp.OK(t, reader.Collect(l.ctx, &all))
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				if data, ok := m.Data.(metricdata.Gauge[int64]); ok && m.Name == name && len(data.DataPoints) == 1 {
					return data.DataPoints[0].Value
				}
			}
		}
		return -1
	}
	eventually(t, "the gauges show", func() bool {
		return gauge("asyncmonolith.log.unassigned") == 1 && gauge("asyncmonolith.reader.lag") == 0 &&
			gauge("asyncmonolith.reader.halted") == 0 && gauge("asyncmonolith.reader.parked") == 0
	})
}
