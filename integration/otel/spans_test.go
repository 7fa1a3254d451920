package otel_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// errCard is an error with a type of its own.
type errCard struct{ number string }

func (e *errCard) Error() string { return "card " + e.number + " declined" }

// elsewhere is a context in which another application created a message.
const elsewhere = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// script answers one run after the other with these results, then with nil.
func script(name string, results ...error) bus.Consumer {
	var mu sync.Mutex
	return bus.Consume(name, func(context.Context, order) error {
		mu.Lock()
		defer mu.Unlock()
		if len(results) == 0 {
			return nil
		}
		result := results[0]
		results = results[1:]
		return result
	}, bus.MaxAttempts(2))
}

func refunds(name string) bus.Consumer {
	return bus.Consume(name, func(context.Context, refund) error { return nil })
}

// TestSpans compares the spans of whole stories, from produce to the last run,
// with testdata/spans.golden.
func TestSpans(t *testing.T) {
	testdb.SQLite(t) // skips the test in a run about other databases
	declined := func() error { return &errCard{"4111"} }
	produced := func(p *shop, options ...outbox.Option) {
		p.inApp(func(ctx context.Context) error { return p.produce(ctx, order{"1"}, options...) })
	}
	batch := func(items ...outbox.Item) func(*shop) {
		return func(p *shop) {
			p.inApp(func(ctx context.Context) error {
				_, err := p.producer.ProduceMany(ctx, p.db, items...)
				return err
			})
		}
	}
	var current *shop
	producing := bus.Consume("a", func(ctx context.Context, o order) error { return current.produce(ctx, refund(o)) })
	header := outbox.Header("traceparent", elsewhere)
	forwarded := outbox.Item{Payload: order{"1"}, Options: []outbox.Option{header}}
	stories := []struct {
		name      string
		config    amotel.TelemetryConfig
		consumers []bus.Consumer
		tell      func(*shop)
	}{
		{"a message", amotel.TelemetryConfig{}, []bus.Consumer{script("a")}, func(p *shop) { produced(p) }},
		{"a message produced outside of any span", amotel.TelemetryConfig{}, []bus.Consumer{script("a")},
			func(p *shop) { check(p, p.produce(p.ctx, order{"1"})) }},
		{"a message with two consumers", amotel.TelemetryConfig{}, []bus.Consumer{script("a"), script("b")}, func(p *shop) { produced(p) }},
		{"a message produced by a consumer", amotel.TelemetryConfig{}, []bus.Consumer{producing, refunds("r")},
			func(p *shop) { current = p; produced(p) }},
		{"a batch", amotel.TelemetryConfig{}, []bus.Consumer{script("a")},
			batch(outbox.Item{Payload: order{"1"}}, outbox.Item{Payload: order{"2"}})},
		{"a batch of two payload types", amotel.TelemetryConfig{}, []bus.Consumer{script("a"), refunds("r")},
			batch(outbox.Item{Payload: order{"1"}}, outbox.Item{Payload: refund{"1"}})},
		{"a batch without create spans", amotel.TelemetryConfig{SkipCreateSpans: true}, []bus.Consumer{script("a")},
			batch(outbox.Item{Payload: order{"1"}}, outbox.Item{Payload: order{"2"}})},
		{"a retry", amotel.TelemetryConfig{}, []bus.Consumer{script("a", declined())}, func(p *shop) { produced(p) }},
		{"a poisoned message", amotel.TelemetryConfig{}, []bus.Consumer{script("a", declined(), declined())}, func(p *shop) { produced(p) }},
		{"a message poisoned at once", amotel.TelemetryConfig{}, []bus.Consumer{script("a", bus.Permanent(declined()))},
			func(p *shop) { produced(p) }},
		{"a discarded message", amotel.TelemetryConfig{}, []bus.Consumer{script("a", bus.Discard(declined()))}, func(p *shop) { produced(p) }},
		{"a snoozed message", amotel.TelemetryConfig{}, []bus.Consumer{script("a", bus.Snooze(time.Minute))}, func(p *shop) { produced(p) }},
		{"a delayed message", amotel.TelemetryConfig{}, []bus.Consumer{script("a")},
			func(p *shop) { produced(p, outbox.Delay(20*time.Millisecond)) }},
		{"a message that is requeued after it was poisoned", amotel.TelemetryConfig{},
			[]bus.Consumer{script("a", bus.Permanent(declined()))}, func(p *shop) {
				produced(p)
				p.process("it is poisoned", func() bool { return p.count("SELECT count(*) FROM poisoned_messages") == 1 })
				result := must(must(poison.NewStore(p.registry))(p).RequeueWhere(p.ctx, p.db, poison.Filter{}, 10))(p)
				if result.Requeued != 1 {
					p.Errorf("requeue: got %+v, want one message", result)
				}
			}},
		{"a message with links only", amotel.TelemetryConfig{LinkOnly: true}, []bus.Consumer{script("a")}, func(p *shop) { produced(p) }},
		{"a forwarded message", amotel.TelemetryConfig{}, []bus.Consumer{script("a")}, func(p *shop) { produced(p, header) }},
		{"a forwarded message in a batch", amotel.TelemetryConfig{}, []bus.Consumer{script("a")},
			batch(forwarded, outbox.Item{Payload: order{"2"}})},
		{"a forwarded message in a batch without create spans", amotel.TelemetryConfig{SkipCreateSpans: true}, []bus.Consumer{script("a")},
			batch(forwarded, outbox.Item{Payload: order{"2"}})},
		{"a scheduled message", amotel.TelemetryConfig{}, []bus.Consumer{script("a", declined())}, func(p *shop) {
			p.inApp(func(ctx context.Context) error { return p.schedule(ctx, order{"1"}) })
		}},
		{"two scheduled messages at once", amotel.TelemetryConfig{}, []bus.Consumer{script("a"), refunds("r")}, func(p *shop) {
			p.inApp(func(ctx context.Context) error {
				return errors.Join(p.schedule(ctx, order{"1"}), p.schedule(ctx, refund{"1"}))
			})
		}},
		{"a send that fails", amotel.TelemetryConfig{}, []bus.Consumer{script("a")}, func(p *shop) {
			refuse := func(bus.ProduceFunc) bus.ProduceFunc {
				return func(context.Context, *bus.Batch) error { return declined() }
			}
			producer := must(outbox.NewProducer(p.registry,
				outbox.ProducerConfig{Telemetry: p.telemetry.Produce(), Middleware: []bus.ProduceMiddleware{refuse}}))(p)
			if _, err := producer.Produce(p.ctx, p.db, order{"1"}); err == nil {
				p.Error("produce: got no error, want the chain's")
			}
		}},
	}
	var text strings.Builder
	for _, story := range stories {
		t.Run(story.name, func(t *testing.T) {
			inShop(t, settings{telemetry: story.config, consumers: story.consumers}, func(p *shop) {
				story.tell(p)
				p.process("all is consumed", func() bool {
					return p.empty() && p.count("SELECT count(*) FROM scheduled_messages WHERE last_fired_at IS NULL") == 0
				})
				text.WriteString("== " + story.name + "\n" + p.spans() + "\n")
				for _, secret := range []string{"4111", "declined", `"id"`} {
					if strings.Contains(p.spans(), secret) {
						p.Errorf("spans: got %q in them, want no payloads and no error texts", secret)
					}
				}
			})
		})
	}
	compare(t, "spans.golden", text.String())
}
