package otel_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/asyncmonolith/asyncmonolith-go/admin"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"

	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// collect returns the library's metrics by name.
func collect(t testing.TB, reader sdkmetric.Reader) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	check(t, reader.Collect(context.WithoutCancel(t.Context()), &all))
	metrics := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		if scope.Scope.Name != "github.com/asyncmonolith/asyncmonolith-go/otel" || scope.Scope.SchemaURL == "" {
			t.Errorf("scope: got %+v, want the library's", scope.Scope)
		}
		for _, m := range scope.Metrics {
			metrics[m.Name] = m
		}
	}
	return metrics
}

func find[D metricdata.Aggregation](t testing.TB, metrics map[string]metricdata.Metrics, name string) D {
	t.Helper()
	data, ok := metrics[name].Data.(D)
	if !ok {
		t.Fatalf("%s: got %T, want %T", name, metrics[name].Data, data)
	}
	return data
}

// describe is one line on a metric: name, unit, kind, bounds and attribute keys.
func describe(m metricdata.Metrics) string {
	kind, keys := "", map[string]bool{}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		kind = "up-down counter"
		if data.IsMonotonic {
			kind = "counter"
		}
		for _, p := range data.DataPoints {
			addKeys(keys, p.Attributes)
		}
	case metricdata.Sum[float64]:
		kind = "counter"
		for _, p := range data.DataPoints {
			addKeys(keys, p.Attributes)
		}
	case metricdata.Gauge[int64]:
		kind = "gauge"
		for _, p := range data.DataPoints {
			addKeys(keys, p.Attributes)
		}
	case metricdata.Gauge[float64]:
		kind = "gauge"
		for _, p := range data.DataPoints {
			addKeys(keys, p.Attributes)
		}
	case metricdata.Histogram[int64]:
		for _, p := range data.DataPoints {
			kind = fmt.Sprint("histogram ", p.Bounds)
			addKeys(keys, p.Attributes)
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			kind = fmt.Sprint("histogram ", p.Bounds)
			addKeys(keys, p.Attributes)
		}
	}
	var names []string
	for key := range keys {
		names = append(names, key)
	}
	slices.Sort(names)
	if len(names) == 0 {
		names = []string{"no attributes"}
	}
	return fmt.Sprintf("%s %s, %s\n    %s\n    %s\n", m.Name, m.Unit, kind, m.Description, strings.Join(names, ", "))
}

func addKeys(keys map[string]bool, set attribute.Set) {
	for _, a := range set.ToSlice() {
		keys[string(a.Key)] = true
	}
}

// TestMetrics compares every metric of a busy shop, by name, unit, kind and
// attributes, with testdata/metrics.golden.
func TestMetrics(t *testing.T) {
	t.Parallel()
	consumers := []bus.Consumer{script("a", &errCard{"4111"}, &errCard{"4111"}), refunds("r"),
		bounded("m", func(context.Context, move) error { return nil })}
	inShop(t, settings{consumers: consumers}, func(p *shop) {
		check(p, p.produce(p.ctx, order{"1"}))
		check(p, p.produce(p.ctx, move{"1", 1}, outbox.DeliverBy(time.Now().Add(-time.Hour), bus.Discarded)))
		_, err := p.producer.ProduceMany(p.ctx, p.db, outbox.Item{Payload: order{"2"}}, outbox.Item{Payload: refund{"1"}})
		check(p, err)
		_, err = p.producer.ProduceMany(p.ctx, p.db, outbox.Item{Payload: refund{"2"}}, outbox.Item{Payload: refund{"4"}})
		check(p, err)
		check(p, p.schedule(p.ctx, refund{"3"}))
		processor := must(outbox.NewProcessor(p.db, p.registry,
			outbox.ProcessorConfig{Middleware: middleware.Default(middleware.Options{Telemetry: p.telemetry.Consume()})}))(p)
		stop := p.background(p.ctx, processor.Run, func(ctx context.Context) error { return p.telemetry.Observe(ctx, processor, 0) })
		fired := p.start(p.ctx)
		p.eventually("all is consumed", p.empty)
		<-time.After(time.Minute)
		fired()
		refuse := func(bus.ProduceFunc) bus.ProduceFunc {
			return func(context.Context, *bus.Batch) error { return bus.ErrTooLarge }
		}
		producer := must(outbox.NewProducer(p.registry,
			outbox.ProducerConfig{Telemetry: p.telemetry.Produce(), Middleware: []bus.ProduceMiddleware{refuse}}))(p)
		if _, err := producer.Produce(p.ctx, p.db, order{"3"}); !errors.Is(err, bus.ErrTooLarge) {
			p.Errorf("produce: got %v, want %v", err, bus.ErrTooLarge)
		}
		metrics := collect(p, p.reader)
		stop()
		var lines []string
		for _, m := range metrics {
			lines = append(lines, describe(m))
		}
		slices.Sort(lines)
		compare(t, "metrics.golden", strings.Join(lines, ""))
		p.checkNumbers(metrics)
	})
}

// checkNumbers knows what happened in TestMetrics.
func (p *shop) checkNumbers(metrics map[string]metricdata.Metrics) {
	p.Helper()
	const order, refund, a, r = "messaging.destination.name=order.placed", "messaging.destination.name=order.refunded",
		"messaging.consumer.group.name=a", "messaging.consumer.group.name=r"
	counts := []struct {
		name string
		with []string
		want int64
	}{
		{"messaging.client.sent.messages", []string{order}, 3},
		{"messaging.client.sent.messages", []string{order, "error.type=asyncmonolith.too_large"}, 1},
		{"messaging.client.sent.messages", []string{refund}, 4},
		{"messaging.client.consumed.messages", []string{order, a}, 4},
		{"messaging.client.consumed.messages", []string{refund, r}, 4},
		{"asyncmonolith.message.settled", []string{a, "asyncmonolith.message.outcome=retried"}, 2},
		{"asyncmonolith.message.settled", []string{a, "asyncmonolith.message.outcome=done"}, 2},
		{"asyncmonolith.message.settled", []string{r, "asyncmonolith.message.outcome=done"}, 4},
		{"asyncmonolith.process.active", nil, 0},
	}
	for _, c := range counts {
		var got int64
		for _, point := range find[metricdata.Sum[int64]](p, metrics, c.name).DataPoints {
			if has(point.Attributes, c.with) {
				got += point.Value
			}
		}
		if got != c.want {
			p.Errorf("%s %v: got %d, want %d", c.name, c.with, got, c.want)
		}
	}
	runs := uint64(0)
	for _, point := range find[metricdata.Histogram[float64]](p, metrics, "messaging.process.duration").DataPoints {
		runs += point.Count
	}
	if runs != 9 {
		p.Errorf("runs measured: got %d, want 9", runs)
	}
	for _, point := range find[metricdata.Histogram[float64]](p, metrics, "asyncmonolith.delivery.lag").DataPoints {
		if point.Sum < 0 || point.Sum > float64(point.Count) {
			p.Errorf("lag: got %v s over %d deliveries, want less than a second each", point.Sum, point.Count)
		}
	}
	late := find[metricdata.Histogram[float64]](p, metrics, "asyncmonolith.schedule.lateness").DataPoints
	if len(late) != 1 || late[0].Count != 1 || late[0].Sum > 10 || !has(late[0].Attributes, []string{refund}) {
		p.Errorf("lateness of schedules: got %+v, want one of a refund", late)
	}
	for _, point := range find[metricdata.Histogram[float64]](p, metrics, "asyncmonolith.end_to_end.lag").DataPoints {
		if has(point.Attributes, []string{a}) && (point.Count != 2 || point.Sum < 10 || point.Sum > 240) {
			p.Errorf("end to end: got %v s over %d messages, want two that took one retry each", point.Sum, point.Count)
		}
	}
}

func has(set attribute.Set, with []string) bool {
	for _, pair := range with {
		key, value, _ := strings.Cut(pair, "=")
		if got, _ := set.Value(attribute.Key(key)); got.String() != value {
			return false
		}
	}
	return true
}

// fake is a source whose answers a test chooses.
type fake struct{ failing atomic.Bool }

func (f *fake) Stats() outbox.Stats {
	return outbox.Stats{Claims: 1, EmptyClaims: 2, Claimed: 3, Fenced: 4, Recovered: 5, Crashed: 6, CrashPoisoned: 7, Abandoned: 8,
		Running: 9, Queued: 10, Limit: 11, Uncounted: 18, Unsettled: 19,
		Circuits: map[string]bool{"a": true, "b": false}, Limits: map[string]outbox.LimitStats{"l": {Slots: 20, Used: 21, Max: 22}},
		RatesSpent: map[string]time.Duration{"a": 23 * time.Second}}
}

func (f *fake) Queues(context.Context) ([]admin.Queue, error) {
	if f.failing.Load() {
		return nil, errors.New("no connection")
	}
	return []admin.Queue{{Consumer: "a", Ready: 12, Delayed: 13, Leased: 14, Poisoned: 15, OldestReady: 16 * time.Second,
		OldestPoisoned: 17 * time.Second, BlocksKeys: true, BlockedKeys: 24,
		Stops: []admin.Explanation{{Reason: admin.Paused}, {Reason: admin.NoLiveProcess}}},
		{Consumer: "b"}}, nil
}

func TestObservedNumbers(t *testing.T) {
	t.Parallel()
	inShop(t, settings{}, func(p *shop) {
		stop := p.background(p.ctx, func(ctx context.Context) error { return p.telemetry.Observe(ctx, &fake{}, time.Second) })
		<-time.After(time.Minute)
		metrics := collect(p, p.reader)
		stop()
		const a, b = "messaging.consumer.group.name=a", "messaging.consumer.group.name=b"
		sums := map[string]int64{
			"claim.filled": 1, "claim.empty": 2, "claim.messages": 3, "message.fenced": 4, "lease.recovered": 5, "message.crashed": 6,
			"message.crash_poisoned": 7, "process.abandoned": 8, "worker.active": 9, "worker.queued": 10, "worker.limit": 11,
			"process.uncounted": 18, "settle.waiting": 19,
		}
		for name, want := range sums {
			points := find[metricdata.Sum[int64]](p, metrics, "asyncmonolith."+name).DataPoints
			if len(points) != 1 || points[0].Value != want || points[0].Attributes.Len() != 0 {
				p.Errorf("%s: got %+v, want %d", name, points, want)
			}
		}
		gauges := []struct {
			name string
			with []string
			want float64
		}{
			{"queue.depth", []string{a, "asyncmonolith.queue.state=ready"}, 12}, {"queue.depth",
				[]string{a, "asyncmonolith.queue.state=delayed"}, 13},
			{"queue.depth", []string{a, "asyncmonolith.queue.state=leased"}, 14}, {"queue.depth", []string{b, "asyncmonolith.queue.state=ready"}, 0},
			{"poison.depth", []string{a}, 15}, {"queue.oldest_age", []string{a}, 16}, {"queue.oldest_age", []string{b},
				0}, {"poison.oldest_age", []string{a}, 17},
		}
		for _, g := range gauges {
			got := map[float64]bool{}
			switch data := metrics["asyncmonolith."+g.name].Data.(type) {
			case metricdata.Gauge[int64]:
				for _, point := range data.DataPoints {
					if has(point.Attributes, g.with) {
						got[float64(point.Value)] = true
					}
				}
			case metricdata.Gauge[float64]:
				for _, point := range data.DataPoints {
					if has(point.Attributes, g.with) {
						got[point.Value] = true
					}
				}
			}
			if len(got) != 1 || !got[g.want] {
				p.Errorf("%s %v: got %v, want %v", g.name, g.with, got, g.want)
			}
		}
		p.checkFlow(metrics)
		if left := collect(p, p.reader); len(left) != 0 {
			p.Errorf("metrics after the end: got %d, want none", len(left))
		}
	})
}

// checkFlow compares what is shown of flow control with what the fake tells.
func (p *shop) checkFlow(metrics map[string]metricdata.Metrics) {
	p.Helper()
	for name, want := range map[string]map[string]float64{
		"circuit.open": {"a": 1, "b": 0}, "limit.slots": {"l": 20}, "limit.used": {"l": 21}, "limit.max": {"l": 22}, "rate.spent": {"a": 23},
		"key.blocked": {"a": 24}, "consumer.stopped": {"paused a": 1, "no_live_process a": 1},
	} {
		if got := numbers(metrics["asyncmonolith."+name]); !maps.Equal(got, want) {
			p.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

// TestStaleSamplesAreNotShown has a database that stops answering.
func TestStaleSamplesAreNotShown(t *testing.T) {
	t.Parallel()
	inShop(t, settings{}, func(p *shop) {
		f := &fake{}
		stop := p.background(p.ctx, func(ctx context.Context) error { return p.telemetry.Observe(ctx, f, 10*time.Second) })
		defer stop()
		shown := func() string {
			metrics := collect(p, p.reader)
			_, queues := metrics["asyncmonolith.queue.depth"]
			_, stats := metrics["asyncmonolith.claim.filled"]
			return fmt.Sprintf("queues %v, stats %v", queues, stats)
		}
		wait := func(d time.Duration, want string) {
			p.Helper()
			<-time.After(d)
			if got := shown(); got != want {
				p.Errorf("got %s, want %s", got, want)
			}
		}
		wait(time.Millisecond, "queues true, stats true") // there from the first sample on
		wait(15*time.Second, "queues true, stats true")   // the last good one is 5 s old
		f.failing.Store(true)
		wait(24*time.Second, "queues true, stats true") // 29 s old
		wait(2*time.Second, "queues false, stats true") // 31 s old
		f.failing.Store(false)
		wait(10*time.Second, "queues true, stats true")
	})
}

// TestProvidersThatRefuse has a meter provider that makes no instruments.
func TestProvidersThatRefuse(t *testing.T) {
	t.Parallel()
	if _, err := amotel.NewTelemetry(amotel.TelemetryConfig{MeterProvider: refusing{}}); err == nil ||
		!strings.Contains(err.Error(), "no counters") {
		t.Errorf("new: got %v, want the meter's error", err)
	}
}

// refusing is a provider of meters without counters.
type refusing struct{ noop.MeterProvider }

func (refusing) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

type refusingMeter struct{ noop.Meter }

func (refusingMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return nil, errors.New("no counters")
}
