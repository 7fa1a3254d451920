package otel_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

type order struct {
	ID string `json:"id"`
}

func (order) PayloadType() string { return "order.placed" }

type refund struct {
	ID string `json:"id"`
}

func (refund) PayloadType() string { return "order.refunded" }

// shop is an application on SQLite and on virtual time, where waiting costs
// nothing, whose spans and metrics stay in memory.
type shop struct {
	*testing.T
	ctx       context.Context // with the bubble's clock for the database
	db        *bun.DB
	recorder  *tracetest.SpanRecorder
	tracers   *sdktrace.TracerProvider
	reader    *sdkmetric.ManualReader
	telemetry *amotel.Telemetry
	registry  *bus.Registry
	producer  *outbox.Producer
	scheduler *schedule.Scheduler
}

// settings are what tests change about a shop.
type settings struct {
	telemetry amotel.TelemetryConfig // providers and propagator are filled in
	sampler   sdktrace.Sampler       // AlwaysSample by default
	consumers []bus.Consumer
}

// inShop runs a test in a shop.
func inShop(t *testing.T, s settings, test func(*shop)) {
	t.Helper()
	path := t.TempDir() + "/shop.db"
	synctest.Test(t, func(t *testing.T) {
		test(newShop(t, store.WithClock(context.WithoutCancel(t.Context()), time.Now), testdb.OpenSQLite(t, path), s))
	})
}

func newShop(t *testing.T, ctx context.Context, db *bun.DB, s settings) *shop {
	t.Helper()
	if s.sampler == nil {
		s.sampler = sdktrace.AlwaysSample()
	}
	p := &shop{T: t, ctx: ctx, db: db, recorder: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	p.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(p.recorder), sdktrace.WithSampler(s.sampler))
	s.telemetry.TracerProvider = p.tracers
	s.telemetry.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(p.reader))
	if s.telemetry.Propagator == nil {
		s.telemetry.Propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	}
	p.telemetry = must(amotel.NewTelemetry(s.telemetry))(t)
	p.registry = must(bus.NewRegistry(s.consumers...))(t)
	p.producer = must(outbox.NewProducer(p.registry, outbox.ProducerConfig{Telemetry: p.telemetry.Produce()}))(t)
	p.scheduler = must(schedule.NewScheduler(p.registry, schedule.SchedulerConfig{Headers: p.telemetry.Headers}))(t)
	check(t, outbox.Migrate(ctx, db, p.registry.Tables()))
	return p
}

func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return value
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// process runs processors until the condition holds, then stops them.
func (p *shop) process(what string, until func() bool) {
	p.Helper()
	p.processIn(p.ctx, what, until)
}

func (p *shop) processIn(ctx context.Context, what string, until func() bool) {
	p.Helper()
	stop := p.start(ctx)
	defer stop()
	p.eventually(what, until)
}

// start runs processors until stop is called.
func (p *shop) start(ctx context.Context) (stop func()) {
	p.Helper()
	messages := must(outbox.NewProcessor(p.db, p.registry, outbox.ProcessorConfig{
		Concurrency: 1, // one message after the other, in order
		Middleware: middleware.Default(middleware.Options{
			Telemetry: p.telemetry.Consume(), Backoff: middleware.Constant(time.Minute),
			OnPoison: func(context.Context, *bus.Message, string, error) {}, // it wraps errors once more
		}),
	}))(p)
	schedules := must(schedule.NewProcessor(p.db, p.registry, p.producer, schedule.ProcessorConfig{Telemetry: p.telemetry.Fire()}))(p)
	return p.background(ctx, messages.Run, schedules.Run)
}

// background runs functions until stop is called.
func (p *shop) background(ctx context.Context, runs ...func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan error)
	for _, run := range runs {
		go func() { results <- run(ctx) }()
	}
	return func() {
		cancel()
		for range runs {
			if err := <-results; err != nil {
				p.Error(err)
			}
		}
	}
}

// eventually polls on virtual time.
func (p *shop) eventually(what string, condition func() bool) {
	p.Helper()
	deadline := time.After(2 * time.Hour)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-deadline:
			p.Fatalf("gave up waiting: %s", what)
		}
		if condition() {
			return
		}
	}
}

// empty tells whether no message waits or runs.
func (p *shop) empty() bool {
	return p.count("SELECT (SELECT count(*) FROM consumer_messages) + (SELECT count(*) FROM message_claims)") == 0
}

func (p *shop) count(query string) (n int) {
	p.Helper()
	check(p, p.db.NewRaw(query).Scan(p.ctx, &n))
	return n
}

// inApp calls fn in a span of the application.
func (p *shop) inApp(fn func(context.Context) error) {
	p.Helper()
	ctx, span := p.tracers.Tracer("app").Start(p.ctx, "app")
	check(p, fn(ctx))
	span.End()
}

func (p *shop) produce(ctx context.Context, payload bus.Payload, options ...outbox.Option) error {
	_, err := p.producer.Produce(ctx, p.db, payload, options...)
	return err
}

// schedule writes a schedule that fires now, and then not for a year.
func (p *shop) schedule(ctx context.Context, payload bus.Payload) error {
	id, err := p.scheduler.Create(ctx, p.db, payload, "0 0 0 1 1 *", "UTC")
	if err != nil {
		return err
	}
	return p.scheduler.Trigger(ctx, p.db, id)
}

// spans describes every span in the order in which they started, but runs one
// after the other by consumer, since nothing is promised there: its number, name
// and kind, its parent and links by number, its status and its attributes.
func (p *shop) spans() string {
	p.Helper()
	started := p.recorder.Started()
	for from := range started {
		to := from
		for to < len(started) && strings.HasPrefix(started[to].Name(), "process ") {
			to++
		}
		slices.SortStableFunc(started[from:to], func(a, b sdktrace.ReadWriteSpan) int {
			return strings.Compare(valueOf(a.Attributes(), "messaging.consumer.group.name"),
				valueOf(b.Attributes(), "messaging.consumer.group.name"))
		})
	}
	if ended := p.recorder.Ended(); len(ended) != len(started) {
		p.Errorf("spans: %d started and %d ended, want all to have ended", len(started), len(ended))
	}
	d := describer{T: p.T, numbers: map[trace.SpanID]string{}, ids: map[string]string{}, traces: map[trace.TraceID]bool{}}
	for i, s := range started {
		d.numbers[s.SpanContext().SpanID()] = fmt.Sprint(i + 1)
	}
	var text strings.Builder
	for _, s := range started {
		text.WriteString(d.span(s))
	}
	return text.String()
}

type describer struct {
	*testing.T
	numbers map[trace.SpanID]string
	ids     map[string]string // of messages
	traces  map[trace.TraceID]bool
}

func (d describer) span(s sdktrace.ReadOnlySpan) string {
	if scope := s.InstrumentationScope(); scope.Name != "app" &&
		(scope.Name != "github.com/asyncmonolith/asyncmonolith-go/otel" || scope.SchemaURL != "https://opentelemetry.io/schemas/1.43.0") {
		d.Errorf("scope of %s: got %+v, want the library's", s.Name(), scope)
	}
	if len(s.Events()) > 0 || s.Status().Description != "" {
		d.Errorf("%s: got events %v and status %q, want neither: they would hold error texts", s.Name(), s.Events(), s.Status().Description)
	}
	origin := "root"
	switch parent := s.Parent(); {
	case !parent.IsValid():
		if d.traces[s.SpanContext().TraceID()] {
			d.Errorf("%s: got a root in a trace that was there before", s.Name())
		}
	case d.numbers[parent.SpanID()] == "":
		origin = "in a span from elsewhere"
	default:
		origin = "in " + d.numbers[parent.SpanID()]
	}
	d.traces[s.SpanContext().TraceID()] = true
	text := fmt.Sprintf("%s. %s, %s, %s", d.numbers[s.SpanContext().SpanID()], s.Name(), s.SpanKind(), origin)
	for _, link := range s.Links() {
		number := d.numbers[link.SpanContext.SpanID()]
		if number == "" {
			number = "elsewhere"
		}
		text += ", link to " + number
		if attributes := d.attributes(link.Attributes); len(attributes) > 0 {
			text += " {" + strings.Join(attributes, " ") + "}"
		}
	}
	if s.Status().Code != codes.Unset {
		text += ", status " + s.Status().Code.String()
	}
	text += "\n"
	for _, a := range d.attributes(s.Attributes()) {
		text += "     " + a + "\n"
	}
	return text
}

// attributes lists attributes in order, with message ids numbered.
func (d describer) attributes(list []attribute.KeyValue) (texts []string) {
	for _, a := range list {
		value := a.Value.String()
		if a.Key == "messaging.message.id" {
			if _, err := uuid.Parse(value); err != nil {
				d.Error(err)
			}
			if d.ids[value] == "" {
				d.ids[value] = fmt.Sprintf("(id %d)", len(d.ids)+1)
			}
			value = d.ids[value]
		}
		texts = append(texts, string(a.Key)+"="+value)
	}
	slices.Sort(texts)
	return texts
}
