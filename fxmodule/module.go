package fxmodule

import (
	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Module provides
//
//   - *outbox.Producer, *schedule.Scheduler, *poison.Store and *admin.Client;
//   - *bus.Registry, of the consumers given to [Consumers];
//   - *outbox.Processor and *schedule.Processor, which it runs;
//   - *notify.Notifier, which it runs, and which is nil when the application
//     provides no notify.Listener: with one, processes wake each other;
//   - *amotel.Telemetry (amotel is this library's package otel), which is nil when
//     the application has no telemetry: see below;
//   - *relay.Runner, which it runs, and which is nil without [Relays];
//   - *ops.Service, for people who look after it all, and an *ops.Runner, which it runs: it carries out
//     what they have planned.
//
// With [EventLog] it also runs a *projection.Runner; what it says of processors is
// true of that, too.
//
// The application must provide a *bun.DB. It may provide [ConsumeMiddleware], [OuterMiddleware],
// [ProduceMiddleware], middleware.OnPoison, *slog.Logger, notify.Listener, and bus.RegistryConfig,
// outbox.ProducerConfig, outbox.ProcessorConfig, schedule.SchedulerConfig,
// schedule.ProcessorConfig, notify.NotifierConfig, relay.RunnerConfig, ops.Config (whose DB and
// Registry it fills in) and amotel.TelemetryConfig, each as a value. fx
// matches by the exact type: a *slog.Logger is found, and a pointer to a configuration
// is an error. Give Module to an application once. It is immutable.
//
// # Start and stop
//
// fx runs OnStart hooks in the order in which they were appended, and OnStop
// hooks in reverse. Module appends two:
//
//  1. With [Migrate], the migration. Its hook is appended before a constructor is given
//     one of the values above, telemetry aside, and after those of the *bun.DB. So
//     it runs before every hook of a constructor or Invoke that takes one of them.
//  2. The start of the processors, in an Invoke. fx calls the Invokes of
//     fx.Modules first, in the order listed, then those given to fx.New itself,
//     in the order listed. So give Module to fx.New itself, not to an fx.Module,
//     and after what has to start before consumers run and stop after they have:
//     application tables, caches. List what makes work after it, such as an HTTP
//     server: it then starts last and stops first.
//
// Use the values from OnStart on. In a constructor there may be no tables yet, and
// the Producer, the Scheduler, the Store and the Admin may still be empty, which
// they say in an error; this is what lets constructors of consumers take them.
//
// OnStart returns an error when the processors cannot work with the database, as
// their Check methods do. OnStop stops claiming and lets running consumers finish
// for ProcessorConfig.DrainTimeout (10 s), or until 1 s before fx's stop timeout
// (15 s unless fx.StopTimeout says otherwise), which it keeps for the hooks that
// stop later: fx skips them when time runs out. Consumers that still run then are
// cancelled, and their messages given back. A processor that ends by itself has
// failed: it shuts the application down with exit code 1, and OnStop returns its
// error.
//
// # Telemetry
//
// Provide a trace.TracerProvider for spans, a metric.MeterProvider for metrics,
// or an amotel.TelemetryConfig that is not zero for either and the rest; what is not given
// of these is OpenTelemetry's global one. With none of them there is no
// telemetry, whatever is registered globally; to have that, provide
// otel.GetTracerProvider and otel.GetMeterProvider of OpenTelemetry. A provider
// must be provided as the interface: fx does not see that a *trace.TracerProvider
// of the SDK is one, so that alone is an error. A line at start, at level Info, says what is on.
//
// All chains are wired, the queues are sampled every 15 s, and processors poll
// under amotel.Quiet. Module does not shut providers down. A ProcessorConfig.Middleware
// of the application replaces the whole consume chain, telemetry included: put
// Telemetry.Consume in it.
var Module = module() // immutable

func module() fx.Option {
	return fx.Options(
		fx.Module("asyncmonolith",
			fx.Provide(newMigration, newHandles, makeRegistry, newRegistry, newTelemetry, newProcessor, newScheduleProcessor, newNotifier, newParkedConsumers, newRelayRunner, newService, newOperationRunner),
			fx.Invoke(refusePointers, refuseConcrete, refuseMistakes, fill),
		),
		fx.Invoke(run), // not in the fx.Module, whose Invokes come before the application's
	)
}

// ConsumeMiddleware is the application's own layers of the consume chain, first
// outermost: they run inside the ready-made ones, right around the consumer. It
// is one ordered value and not a group, since fx shuffles groups. Together with
// an outbox.ProcessorConfig.Middleware, which is the whole chain, it is an error; that
// is also the way to another Backoff: provide a ProcessorConfig with a Chain made by
// middleware.Default. Layers are called by many goroutines at once.
type ConsumeMiddleware []bus.Middleware

// OuterMiddleware is layers of the consume chain that see every run and its final outcome,
// first outermost: they are the Outer of middleware.Options, which says what that
// means. Together with an outbox.ProcessorConfig.Middleware it is an error. Layers are
// called by many goroutines at once.
type OuterMiddleware []bus.Middleware

// ProduceMiddleware is the application's own layers of the produce chain, first
// outermost. Together with an outbox.ProducerConfig.Middleware it is an error. Layers
// are called by many goroutines at once.
type ProduceMiddleware []bus.ProduceMiddleware

// migrating asks for migrations at start.
type migrating struct{}

// Migrate has the application bring the library's tables up to date when it
// starts, before anything uses them: [Module] says when. It may run in many
// instances at once, and is bounded by fx's start timeout. Without it the tables
// must be there, or the start fails with outbox.ErrSchemaOutdated: see outbox.Migrate.
// Without Module it has no effect.
func Migrate() fx.Option { return fx.Supply(&migrating{}) }
