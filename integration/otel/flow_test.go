package otel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// move is a payload that knows its key.
type move struct {
	Customer string `json:"customer"`
	N        int    `json:"n"`
}

func (move) PayloadType() string { return "address.changed" }

func (m move) OrderingKey() string { return "customer:" + m.Customer }

// bounded is a consumer with everything that can hold it up, but for a circuit.
func bounded(name string, fn func(context.Context, move) error) bus.Consumer {
	return bus.Consume(name, fn, bus.Ordered(bus.BlockKey), bus.SharedConcurrency("carriers", 2), bus.RateLimit(1, 20*time.Second, 1),
		bus.CircuitBreaker(bus.CircuitBreakerConfig{MinRequests: 2, FailureRatio: 1}), bus.MaxAttempts(2))
}

// observe runs a processor, and Observe beside it, until stop is called.
func (p *shop) observe(logger *slog.Logger) (stop func()) {
	p.Helper()
	processor := must(outbox.NewProcessor(p.db, p.registry, outbox.ProcessorConfig{Logger: logger,
		Middleware: middleware.Default(middleware.Options{Logger: logger, Telemetry: p.telemetry.Consume(),
			Backoff: middleware.Constant(10 * time.Second)})}))(p)
	return p.background(p.ctx, processor.Run, func(ctx context.Context) error { return p.telemetry.Observe(ctx, processor, 5*time.Second) })
}

// shown returns the numbers of a metric.
func (p *shop) shown(name string) map[string]float64 {
	p.Helper()
	return numbers(collect(p, p.reader)["asyncmonolith."+name])
}

// numbers are those of a metric by the values of their attributes.
func numbers(m metricdata.Metrics) map[string]float64 {
	numbers := map[string]float64{}
	note := func(set attribute.Set, value float64) {
		var values []string
		for _, a := range set.ToSlice() {
			values = append(values, a.Value.String())
		}
		numbers[strings.Join(values, " ")] = value
	}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, point := range data.DataPoints {
			note(point.Attributes, float64(point.Value))
		}
	case metricdata.Sum[float64]:
		for _, point := range data.DataPoints {
			note(point.Attributes, point.Value)
		}
	case metricdata.Gauge[int64]:
		for _, point := range data.DataPoints {
			note(point.Attributes, float64(point.Value))
		}
	}
	return numbers
}

func (p *shop) checkShown(when, name string, want map[string]float64) {
	p.Helper()
	if got := p.shown(name); !maps.Equal(got, want) {
		p.Errorf("%s, %s: got %v, want %v", when, name, got, want)
	}
}

// TestCircuitsAndBreakersAreMeasured: those that consumers have, open or not.
func TestCircuitsAndBreakersAreMeasured(t *testing.T) {
	t.Parallel()
	circuit := new(outbox.Circuit)
	away := true
	broken := bus.Consume("broken", func(context.Context, refund) error {
		if away {
			return errors.New("no carrier")
		}
		return nil
	}, bus.CircuitBreaker(bus.CircuitBreakerConfig{MinRequests: 2, FailureRatio: 1}), bus.MaxAttempts(100), bus.AttemptDelay(time.Second))
	gated := bus.Consume("gated", func(context.Context, order) error {
		if away {
			return circuit.Trip(errors.New("no carrier"))
		}
		return nil
	}, outbox.WithCircuit(circuit))
	inShop(t, settings{consumers: []bus.Consumer{gated, broken, script("plain")}}, func(p *shop) {
		stop := p.observe(slog.New(slog.DiscardHandler))
		defer stop()
		<-time.After(10 * time.Second)
		p.checkShown("before", "circuit.open", map[string]float64{"gated": 0, "broken": 0})
		p.checkShown("before", "rate.spent", map[string]float64{})
		p.checkShown("before", "limit.max", map[string]float64{})
		p.checkShown("before", "key.blocked", map[string]float64{})
		for range 3 {
			check(p, p.produce(p.ctx, order{"1"}))
			check(p, p.produce(p.ctx, refund{"1"}))
		}
		<-time.After(10 * time.Second)
		p.checkShown("while it is away", "circuit.open", map[string]float64{"gated": 1, "broken": 1})
		away = false
		p.eventually("all is consumed", p.empty)
		<-time.After(10 * time.Second)
		p.checkShown("afterwards", "circuit.open", map[string]float64{"gated": 0, "broken": 0})
	})
}

// TestLimitsRatesAndKeysAreMeasured follows four messages of one key through a consumer that
// starts one every twenty seconds.
func TestLimitsRatesAndKeysAreMeasured(t *testing.T) {
	t.Parallel()
	var begun chan struct{} // of the bubble
	var goOn chan error
	consumer := bounded("a", func(context.Context, move) error {
		begun <- struct{}{}
		return <-goOn
	})
	inShop(t, settings{consumers: []bus.Consumer{consumer, script("plain")}}, func(p *shop) {
		begun, goOn = make(chan struct{}, 10), make(chan error)
		stop := p.observe(slog.New(slog.DiscardHandler))
		defer stop()
		<-time.After(time.Second)
		p.checkShown("before", "limit.slots", map[string]float64{"carriers": 0})
		for n := range 3 {
			check(p, p.produce(p.ctx, move{"4111", n}))
		}
		<-begun
		<-time.After(time.Second)
		if got := p.shown("limit.slots")["carriers"]; got < 1 || got > 2 {
			p.Errorf("while one runs: got %v slots, want one, or another for what waits", got)
		}
		p.checkShown("while one runs", "limit.used", map[string]float64{"carriers": 1})
		p.checkShown("while one runs", "limit.max", map[string]float64{"carriers": 2})
		goOn <- bus.Permanent(errors.New("no such street"))
		<-time.After(30 * time.Second)
		p.checkShown("once it is poisoned", "limit.used", map[string]float64{"carriers": 0})
		p.checkShown("once it is poisoned", "key.blocked", map[string]float64{"a": 1})
		if got := p.shown("rate.spent")["a"]; got < 19 || got > 21 {
			p.Errorf("after half a minute: got the rate spent for %v s, want about 20", got)
		}
		requeued := must(must(poison.NewStore(p.registry))(p).RequeueWhere(p.ctx, p.db, poison.Filter{Consumer: "a"}, 10))(p)
		if requeued.Requeued != 1 {
			p.Errorf("requeue: got %+v, want one", requeued)
		}
		for range 3 {
			goOn <- nil
		}
		p.eventually("all is consumed", p.empty)
		<-time.After(time.Minute)
		p.checkShown("afterwards", "key.blocked", map[string]float64{"a": 0})
		p.checkShown("afterwards", "limit.slots", map[string]float64{"carriers": 0})
		spent := p.shown("rate.spent")["a"]
		if spent < 60 || spent > 82 { // four starts
			p.Errorf("afterwards: got the rate spent for %v s, want it for each of four starts", spent)
		}
		<-time.After(time.Minute)
		if got := p.shown("rate.spent")["a"]; got != spent {
			p.Errorf("a minute later: got the rate spent for %v s, want %v still", got, spent)
		}
		var lags []string
		for _, s := range p.recorder.Ended() {
			if limit := valueOf(s.Attributes(), "asyncmonolith.limit.name"); strings.HasPrefix(s.Name(), "process") && limit != "carriers" {
				p.Errorf("limit on the span of a run: got %q, want %q", limit, "carriers")
			}
			if lag := valueOf(s.Attributes(), "asyncmonolith.delivery.lag"); lag != "" {
				lags = append(lags, lag)
			}
		}
		if len(lags) != 4 || len(lags[0]) > 0 && lags[0][0] != '0' || len(lags[3]) < 2 {
			p.Errorf("waits on the spans of four runs: got %q seconds, want next to nothing at first, and more at last", lags)
		}
	})
}

// TestExpiredMessagesAreCounted whatever becomes of them.
func TestExpiredMessagesAreCounted(t *testing.T) {
	t.Parallel()
	inShop(t, settings{consumers: []bus.Consumer{script("a")}}, func(p *shop) {
		past := time.Now().Add(-time.Minute)
		for _, outcome := range []bus.Outcome{bus.Discarded, bus.Poisoned} {
			check(p, p.produce(p.ctx, order{"1"}, outbox.DeliverBy(past, outcome)))
		}
		check(p, p.produce(p.ctx, order{"1"}))
		p.process("all is consumed", p.empty)
		p.checkShown("afterwards", "message.late", map[string]float64{"a order.placed": 2})
	})
}

// syncBuffer is what all of a process writes its log to.
type syncBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *syncBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(text)
}

// TestKeysAreNowhere greps all that is recorded of consumers with everything for the key of
// their messages, and for insert ids.
func TestKeysAreNowhere(t *testing.T) {
	t.Parallel()
	const secret = "4111-1111"
	var mu sync.Mutex
	runs := map[string]int{}
	fails := func(ctx context.Context, m move) error {
		mu.Lock()
		defer mu.Unlock()
		current, _ := bus.MessageFromContext(ctx)
		id := current.Consumer + current.ID.String()
		runs[id]++
		switch {
		case m.N == 0 && runs[id] < 3:
			return errors.New("no carrier")
		case m.N == 1 && runs[id] < 3:
			panic("no street")
		case m.N == 2 && runs[id] < 2:
			return bus.Snooze(time.Second)
		case m.N == 3:
			return bus.Discard(errors.New("no matter"))
		}
		return nil
	}
	skips := bus.Consume("skips", fails, bus.Ordered(bus.SkipPoisoned), bus.MaxAttempts(2))
	inShop(t, settings{consumers: []bus.Consumer{bounded("parks", fails), skips}}, func(p *shop) {
		var log syncBuffer
		stop := p.observe(slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		deadline := outbox.DeliverBy(time.Now().Add(5*time.Second), bus.Poisoned)
		for n := range 5 {
			check(p, p.produce(p.ctx, move{secret, n}, outbox.InsertID(fmt.Sprint(secret, n))))
			check(p, p.produce(p.ctx, move{"another", n}, outbox.OrderingKey(secret),
				outbox.InsertID("late "+secret+fmt.Sprint(n), outbox.Replace()), deadline))
		}
		store := must(poison.NewStore(p.registry))(p)
		for range 12 {
			<-time.After(30 * time.Second)
			_ = must(store.RequeueWhere(p.ctx, p.db, poison.Filter{Consumer: "parks"}, 1))(p)
		}
		metrics := must(json.Marshal(collect(p, p.reader)))(p)
		stop()
		recorded := map[string]string{"metrics": fmt.Sprintf("%s %+v", metrics, collect(p, p.reader)), "log": log.String()}
		for _, s := range p.recorder.Ended() {
			recorded["spans"] += describeAll(s)
		}
		for what, text := range recorded {
			if !strings.Contains(text, "parks") || !strings.Contains(text, "skips") {
				p.Errorf("%s: got nothing of the consumers, want something: %.300s", what, text)
			}
			if i := strings.Index(text, secret); i >= 0 {
				p.Errorf("%s: got the key in ... %s ..., want it nowhere", what, text[max(i-200, 0):min(i+50, len(text))])
			}
		}
		for _, outcome := range []string{"done", "discarded", "retried", "snoozed", "poisoned"} {
			if !strings.Contains(recorded["log"], `"outcome":"`+outcome+`"`) {
				p.Errorf("got no message that was %s, want each kind", outcome)
			}
		}
	})
}

// describeAll is everything that an exporter could send of a span.
func describeAll(s sdktrace.ReadOnlySpan) string {
	return fmt.Sprintf("%s %+v %+v %+v %+v %+v %+v %v\n", s.Name(), s.Attributes(), s.Events(), s.Links(), s.Status(), s.SpanContext(),
		s.Resource(), s.InstrumentationScope())
}
