package otel_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/asyncmonolith/asyncmonolith-go/bus"

	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

func TestIdleProcessorsMakeNoSpans(t *testing.T) {
	t.Parallel()
	inShop(t, settings{consumers: []bus.Consumer{script("a"), refunds("r")}}, func(p *shop) {
		stop := p.start(p.ctx)
		observing := p.background(p.ctx, func(ctx context.Context) error { return p.telemetry.Observe(ctx, idle{}, 0) })
		<-time.After(5 * time.Minute)
		observing()
		stop()
		if got := p.spans(); got != "" {
			p.Errorf("spans after five idle minutes: got\n%s\nwant none", got)
		}
	})
}

// idle is a source with nothing to tell.
type idle struct{}

func (idle) Stats() outbox.Stats                               { return outbox.Stats{} }
func (idle) Queues(ctx context.Context) ([]admin.Queue, error) { return nil, ctx.Err() }

// tracedQueries makes a span of every statement, as an instrumented driver does.
type tracedQueries struct{ tracer trace.Tracer }

func (q tracedQueries) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context {
	ctx, _ = q.tracer.Start(ctx, "query")
	return ctx
}

func (tracedQueries) AfterQuery(ctx context.Context, _ *bun.QueryEvent) {
	trace.SpanFromContext(ctx).End()
}

// TestQuietProcessors has a traced database: quiet processors poll without
// spans, and messages are traced as ever.
func TestQuietProcessors(t *testing.T) {
	t.Parallel()
	consumers := []bus.Consumer{bus.Consume("a", func(ctx context.Context, _ order) error {
		_, span := trace.SpanFromContext(ctx).TracerProvider().Tracer("app").Start(ctx, "handler")
		span.End()
		return nil
	})}
	for _, quiet := range []bool{false, true} {
		inShop(t, settings{sampler: sdktrace.ParentBased(sdktrace.AlwaysSample()), consumers: consumers}, func(p *shop) {
			p.db = p.db.WithQueryHook(tracedQueries{p.tracers.Tracer("app")})
			ctx := p.ctx
			if quiet {
				ctx = amotel.Quiet(ctx)
			}
			check(p, p.produce(amotel.Quiet(p.ctx), order{"1"})) // not sampled
			stop := p.start(ctx)
			<-time.After(time.Minute)
			check(p, p.produce(p.ctx, order{"2"}))
			<-time.After(time.Minute)
			stop()
			polls, handlers := 0, 0
			for _, s := range p.recorder.Ended() {
				switch {
				case s.Name() == "query" && !s.Parent().IsValid():
					polls++
				case s.Name() == "handler" && s.Parent().IsValid():
					handlers++
				case strings.HasPrefix(s.Name(), "process") && s.Parent().SpanID() == trace.SpanContextFromContext(ctx).SpanID():
					p.Errorf("run: got the context of Run as its parent, want the producer's")
				}
			}
			if (polls > 0) == quiet {
				p.Errorf("quiet %v: got %d spans of polls, want some exactly when not quiet", quiet, polls)
			}
			if handlers != 1 {
				p.Errorf("quiet %v: got %d spans of handlers in one of a run, want that of the message that is sampled", quiet, handlers)
			}
		})
	}
}
