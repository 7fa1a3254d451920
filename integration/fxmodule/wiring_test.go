package fxmodule_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/uptrace/bun"
	otelapi "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"
	"go.uber.org/fx/fxtest"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/fxmodule"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/notify"
	"github.com/asyncmonolith/asyncmonolith-go/notify/pgxnotify"
	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// TestFxMigratesBeforeAnybodyUsesTheTables lists a module that uses the library
// when it starts before the library's own.
func TestFxMigratesBeforeAnybodyUsesTheTables(t *testing.T) {
	t.Parallel()
	boots := map[string]any{
		"a schedule": func(lifecycle fx.Lifecycle, db *bun.DB, s *schedule.Scheduler) {
			lifecycle.Append(fx.StartHook(func(ctx context.Context) error {
				return testapp.Second(s.Upsert(ctx, db, order{}, "@daily", "UTC", schedule.Name("boot")))
			}))
		},
		"a message": func(lifecycle fx.Lifecycle, db *bun.DB, p *outbox.Producer) {
			lifecycle.Append(fx.StartHook(func(ctx context.Context) error { return testapp.Second(p.Produce(ctx, db, order{})) }))
		},
		"a look at what waits": func(lifecycle fx.Lifecycle, db *bun.DB, a *admin.Client) {
			lifecycle.Append(fx.StartHook(func(ctx context.Context) error { return testapp.Second(a.Queues(ctx, db)) }))
		},
		"a count": func(lifecycle fx.Lifecycle, db *bun.DB, s *poison.Store) {
			lifecycle.Append(fx.StartHook(func(ctx context.Context) error { return testapp.Second(s.Count(ctx, db, poison.Filter{})) }))
		},
		"a look": func(lifecycle fx.Lifecycle, p *outbox.Processor) {
			lifecycle.Append(fx.StartHook(func(ctx context.Context) error { return testapp.Second(p.Queues(ctx)) }))
		},
	}
	for name, boot := range boots {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fxtest.New(t, fx.Supply(testdb.SQLite(t)),
				fx.Module("mail", fx.Invoke(boot)),
				fxmodule.Module, fxmodule.Migrate(),
				fxmodule.Consumers(bus.Consume("c", func(context.Context, order) error { return nil }))).RequireStart().RequireStop()
		})
	}
}

// hookOrder notes the order in which hooks run.
type hookOrder struct {
	mu    sync.Mutex
	names []string
}

func (h *hookOrder) LogEvent(event fxevent.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch e := event.(type) {
	case *fxevent.OnStartExecuting:
		h.names = append(h.names, "start "+e.FunctionName)
	case *fxevent.OnStopExecuting:
		h.names = append(h.names, "stop "+e.FunctionName)
	}
}

// at returns when a hook ran whose name contains the text.
func (h *hookOrder) at(t *testing.T, text string) int {
	t.Helper()
	i := slices.IndexFunc(h.names, func(name string) bool { return strings.Contains(name, text) })
	if i < 0 {
		t.Fatalf("hooks: got %q, want one of %s", h.names, text)
	}
	return i
}

func createTables(context.Context) error { return nil }
func dropCaches(context.Context) error   { return nil }
func openDoors(context.Context) error    { return nil }
func closeDoors(context.Context) error   { return nil }

// TestFxProcessorsStartWhereTheModuleIsListed looks at the order that the comment
// of fxmodule.Module promises.
func TestFxProcessorsStartWhereTheModuleIsListed(t *testing.T) {
	t.Parallel()
	hooks := &hookOrder{}
	app := fx.New(fx.WithLogger(func() fxevent.Logger { return hooks }), fx.Supply(testdb.SQLite(t)),
		fx.Invoke(func(l fx.Lifecycle) { l.Append(fx.StartStopHook(createTables, dropCaches)) }),
		fxmodule.Module, fxmodule.Migrate(),
		fx.Invoke(func(l fx.Lifecycle) { l.Append(fx.StartStopHook(openDoors, closeDoors)) }))
	testapp.OK(t, errors.Join(app.Start(t.Context()), app.Stop(t.Context())))
	want := []string{"start " + "github.com/asyncmonolith/asyncmonolith-go/fxmodule.newMigration", "createTables", "start " + processorsHook,
		"openDoors", "closeDoors", "stop " + processorsHook, "dropCaches"}
	for i := range want[1:] {
		if hooks.at(t, want[i]) >= hooks.at(t, want[i+1]) {
			t.Errorf("order: got %q, want %s before %s", hooks.names, want[i], want[i+1])
		}
	}
}

const processorsHook = "github.com/asyncmonolith/asyncmonolith-go/fxmodule.(*lifecycle)"

// TestFxConsumersMayProduce gives constructors of consumers what is made from the
// registry that these consumers are in.
func TestFxConsumersMayProduce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		done := make(chan error, 1)
		newConsumers := func(db *bun.DB, producer *outbox.Producer, scheduler *schedule.Scheduler, store *poison.Store) []bus.Consumer {
			return []bus.Consumer{
				bus.Consume("asks", func(ctx context.Context, _ order) error {
					return producer.RunInTx(ctx, db, func(ctx context.Context, tx bun.Tx) error {
						_, scheduled := scheduler.Upsert(ctx, tx, refund{}, "@yearly", "UTC", schedule.Name("refunds"))
						_, counted := store.Count(ctx, tx, poison.Filter{})
						return errors.Join(scheduled, counted, testapp.Second(producer.Produce(ctx, tx, refund{})))
					})
				}),
				bus.Consume("answers", func(context.Context, refund) error { done <- nil; return nil }),
			}
		}
		var producer *outbox.Producer
		app := fxtest.New(t, fx.Supply(db), fxmodule.Module, fxmodule.Migrate(), fxmodule.Consumers(newConsumers),
			fx.Populate(&producer)).RequireStart()
		defer app.RequireStop()
		testapp.OK(t, testapp.Second(producer.Produce(t.Context(), db, order{})))
		<-done
	})
}

// TestFxUseInAConstructorIsExplained produces before the application starts.
func TestFxUseInAConstructorIsExplained(t *testing.T) {
	t.Parallel()
	for name, early := range map[string]any{
		"produce": func(db *bun.DB, p *outbox.Producer) (bus.Consumer, error) {
			return bus.Consumer{}, testapp.Second(p.Produce(context.Background(), db, order{}))
		},
		"schedule": func(db *bun.DB, s *schedule.Scheduler) (bus.Consumer, error) {
			return bus.Consumer{}, testapp.Second(s.Create(context.Background(), db, order{}, "@daily", "UTC"))
		},
		"list": func(db *bun.DB, s *poison.Store) (bus.Consumer, error) {
			return bus.Consumer{}, testapp.Second(s.Count(context.Background(), db, poison.Filter{}))
		},
	} {
		err := fx.New(fx.NopLogger, fx.Supply(testdb.SQLite(t)), fxmodule.Module, fxmodule.Consumers(early)).Err()
		if err == nil || !strings.Contains(err.Error(), "under fx use it from OnStart on") {
			t.Errorf("%s: got %v, want it to say when", name, err)
		}
	}
}

func newBrokenConsumer() (bus.Consumer, error) { return bus.Consumer{}, errors.New("broken") }

type missing struct{}

func newDemandingConsumer(missing) bus.Consumer { return bus.Consumer{} }

func TestFxErrorsNameTheConstructor(t *testing.T) {
	t.Parallel()
	for name, constructor := range map[string]any{"newBrokenConsumer": newBrokenConsumer, "newDemandingConsumer": newDemandingConsumer} {
		err := fx.New(fx.NopLogger, fx.Supply(testdb.SQLite(t)), fxmodule.Module, fxmodule.Consumers(constructor)).Err()
		if err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "makeFuncStub") {
			t.Errorf("got %v, want it to name %s", err, name)
		}
	}
}

func TestFxTakesAListOfConsumers(t *testing.T) {
	t.Parallel()
	list := []bus.Consumer{
		bus.Consume("a", func(context.Context, order) error { return nil }),
		bus.Consume("b", func(context.Context, order) error { return nil }),
	}
	var registry *bus.Registry
	app := fx.New(fx.NopLogger, fx.Supply(testdb.SQLite(t)), fxmodule.Module, fxmodule.Consumers(list, list[:0]), fx.Populate(&registry))
	if err := app.Err(); err != nil || len(registry.Consumers()) != 2 {
		t.Errorf("got %v, want both registered", err)
	}
}

func TestFxNamesItsOwnCureForMissingTables(t *testing.T) {
	t.Parallel()
	err := fx.New(fx.NopLogger, fx.Supply(testdb.SQLite(t)), fxmodule.Module).Start(t.Context())
	if !errors.Is(err, dberr.ErrSchema) || !strings.Contains(err.Error(), "fxmodule.Migrate()") ||
		strings.Count(err.Error(), "there is no table") != 1 {
		t.Errorf("got %v, want ErrSchemaOutdated once, and what to do about it under fx", err)
	}
}

func TestFxSaysWhatTelemetryThereIs(t *testing.T) {
	t.Parallel()
	sdk := sdktrace.NewTracerProvider()
	composite := propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	for name, test := range map[string]struct {
		option fx.Option
		want   string
	}{
		"nothing":                    {fx.Options(), "traces=off metrics=off notifications=off"},
		"a concrete type beside it":  {fx.Supply(sdk, fx.Annotate(sdk, fx.As(new(trace.TracerProvider)))), "traces=provided metrics=global"},
		"the interface":              {fx.Provide(func() trace.TracerProvider { return sdk }), "traces=provided metrics=global"},
		"what is registered":         {fx.Provide(otelapi.GetMeterProvider), "traces=global metrics=provided"},
		"a configuration with it":    {fx.Supply(amotel.TelemetryConfig{TracerProvider: sdk}), "traces=provided metrics=global"},
		"a configuration without it": {fx.Supply(amotel.TelemetryConfig{Propagator: composite}), "traces=global metrics=global"},
	} {
		log := &testapp.Lines{}
		fxtest.New(t, fx.Supply(testdb.SQLite(t), log.Logger()), fxmodule.Module, fxmodule.Migrate(), test.option).RequireStart().RequireStop()
		if got := log.String(); strings.Count(got, test.want) != 1 || !strings.Contains(got, "level=INFO") {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
	app := fx.New(fx.NopLogger, fx.Supply(testdb.SQLite(t), amotel.TelemetryConfig{TracerProvider: sdk}), fxmodule.Module,
		fx.Provide(func() trace.TracerProvider { return sdk }))
	if err := app.Err(); err == nil || !strings.Contains(err.Error(),
		"both trace.TracerProvider and amotel.TelemetryConfig.TracerProvider are provided") {
		t.Errorf("two providers: got %v, want them refused", err)
	}
	app = fx.New(fx.NopLogger, fx.Supply(testdb.SQLite(t)), fxmodule.Module, fx.Provide(func() *sdktrace.TracerProvider { return sdk }))
	if err := app.Err(); err == nil || !strings.Contains(err.Error(), "with fx.As(new(trace.TracerProvider))") {
		t.Errorf("a concrete type alone: got %v, want it refused", err)
	}
}

// TestFxWarnsWithoutConsumers: a forgotten fxmodule.Consumers would else be silence.
func TestFxWarnsWithoutConsumers(t *testing.T) {
	t.Parallel()
	some := fxmodule.Consumers(bus.Consume("c", func(context.Context, order) error { return nil }))
	for name, test := range map[string]struct {
		option fx.Option
		want   int
	}{"none": {fx.Options(), 1}, "one": {some, 0}} {
		log := &testapp.Lines{}
		fxtest.New(t, fx.Supply(testdb.SQLite(t), log.Logger()), fxmodule.Module, fxmodule.Migrate(), test.option).RequireStart().RequireStop()
		if got := log.String(); strings.Count(got, `level=WARN msg="no consumers are registered`) != test.want {
			t.Errorf("%s: got %s, want %d warnings", name, got, test.want)
		}
	}
}

// TestFxTelemetryConfigReachesTheChains has every run be a trace of its own.
func TestFxTelemetryConfigReachesTheChains(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	ran := make(chan trace.SpanContext, 1)
	var producer *outbox.Producer
	app := fxtest.New(t, fx.Supply(db, amotel.TelemetryConfig{TracerProvider: sdktrace.NewTracerProvider(), LinkOnly: true}),
		fxmodule.Module, fxmodule.Migrate(), fx.Populate(&producer),
		fxmodule.Consumers(bus.Consume("c", func(ctx context.Context, _ order) error {
			ran <- trace.SpanContextFromContext(ctx)
			return nil
		}))).RequireStart()
	defer app.RequireStop()
	ctx, span := sdktrace.NewTracerProvider().Tracer("test").Start(t.Context(), "request")
	defer span.End()
	testapp.OK(t, testapp.Second(producer.Produce(ctx, db, order{})))
	if run := <-ran; !run.IsValid() || run.TraceID() == span.SpanContext().TraceID() {
		t.Errorf("got trace %s, want another than the request's %s", run.TraceID(), span.SpanContext().TraceID())
	}
}

// TestFxRefusesOtherTypes: nobody would look at them.
func TestFxRefusesOtherTypes(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	for want, other := range map[string]any{
		"[]bus.Middleware": []bus.Middleware{}, "[]bus.ProduceMiddleware": []bus.ProduceMiddleware{},
		"*bus.RegistryConfig": &bus.RegistryConfig{}, "*outbox.ProducerConfig": &outbox.ProducerConfig{},
		"*outbox.ProcessorConfig":   &outbox.ProcessorConfig{},
		"*schedule.SchedulerConfig": &schedule.SchedulerConfig{}, "*schedule.ProcessorConfig": &schedule.ProcessorConfig{},
		"*otel.TelemetryConfig": &amotel.TelemetryConfig{}, "*notify.NotifierConfig": &notify.NotifierConfig{},
		"*eventlog.LogConfig": &eventlog.LogConfig{}, "*projection.RunnerConfig": &projection.RunnerConfig{},
		"*fxmodule.ConsumeMiddleware": &fxmodule.ConsumeMiddleware{}, "*fxmodule.OuterMiddleware": &fxmodule.OuterMiddleware{},
		"*fxmodule.ProduceMiddleware":                        &fxmodule.ProduceMiddleware{},
		"func(context.Context, *bus.Message, string, error)": func(context.Context, *bus.Message, string, error) {},
		"*pgxnotify.Listener":                                pgxnotify.FromDB(db.DB),
	} {
		err := fx.New(fx.NopLogger, fx.Supply(db, other), fxmodule.Module).Err()
		if err == nil || !strings.Contains(err.Error(), "fxmodule: "+want+" is provided") {
			t.Errorf("%s: got %v, want it refused", want, err)
		}
	}
}

// TestFxTakesAConcreteListener in a configuration, or beside the interface.
func TestFxTakesAConcreteListener(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	inConfig := func(l *pgxnotify.Listener) notify.NotifierConfig { return notify.NotifierConfig{Listener: l} }
	asInterface := func(l *pgxnotify.Listener) notify.Listener { return l }
	for _, constructor := range []any{inConfig, asInterface} {
		log, listener := &testapp.Lines{}, pgxnotify.FromDB(db.DB)
		app := fx.New(fx.NopLogger, fx.Supply(db, listener, log.Logger()), fx.Provide(constructor), fxmodule.Module, fxmodule.Migrate())
		testapp.OK(t, app.Err())
		if err := app.Start(t.Context()); err != nil {
			t.Error(err)
		}
		if err := app.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if got := log.String(); !strings.Contains(got, "notifications=provided") {
			t.Errorf("%T: got %s, want notifications=provided", constructor, got)
		}
	}
}

// TestFxNamesMistakesFirstAndInOneOrder makes mistakes in many consumers, which fx
// shuffles.
func TestFxNamesMistakesFirstAndInOneOrder(t *testing.T) {
	t.Parallel()
	var consumers []any
	for i := range 8 {
		consumers = append(consumers, func() bus.Consumer {
			return bus.Consume[order](fmt.Sprint("bad-", i), nil, bus.Timeout(-1),
				func(c *bus.ConsumerConfig) { c.MaxAttempts, c.Concurrency = -1, -1 })
		})
	}
	db, first := testdb.SQLite(t), ""
	for range 5 {
		err := fx.New(fx.NopLogger, fx.Supply(db), fxmodule.Module, fxmodule.Consumers(consumers...)).Err()
		if err == nil || !strings.HasPrefix(err.Error(), `bus: consumer "bad-0": `) {
			t.Fatalf("got %v, want the first mistake at once", err)
		}
		if first == "" {
			first = err.Error()
		}
		if err.Error() != first {
			t.Errorf("got %v, want it like before: %s", err, first)
		}
	}
}

func TestFxTakesOnPoison(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	told := make(chan string, 1)
	hook := func() middleware.OnPoison {
		return func(_ context.Context, m *bus.Message, _ string, err error) { told <- m.Consumer + ": " + err.Error() }
	}
	consumer := bus.Consume("c", func(context.Context, order) error { return bus.Permanent(errors.New("no luck")) })
	app := fx.New(fx.NopLogger, fx.Supply(db), fx.Provide(hook), fxmodule.Module, fxmodule.Migrate(), fxmodule.Consumers(consumer),
		fx.Invoke(func(lifecycle fx.Lifecycle, p *outbox.Producer) {
			lifecycle.Append(fx.StartHook(func(ctx context.Context) error { return testapp.Second(p.Produce(ctx, db, order{})) }))
		}))
	testapp.OK(t, app.Start(t.Context()))
	if got := <-told; got != "c: no luck" {
		t.Errorf("told: got %q, want the consumer and its error", got)
	}
	if err := app.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	both := fx.New(fx.NopLogger, fx.Supply(db, outbox.ProcessorConfig{Middleware: []bus.Middleware{middleware.Recover()}}), fx.Provide(hook),
		fxmodule.Module, fxmodule.Consumers(consumer)).Err()
	if both == nil || !strings.Contains(both.Error(), "middleware.OnPoison") {
		t.Errorf("beside a whole chain: got %v, want it refused", both)
	}
}
