package fxmodule

import (
	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Module provides
//
//   - *outbox.Producer, *schedule.Scheduler, *poison.Store and *admin.Client;
//   - *bus.Registry, with the consumers given to [Consumers];
//   - *outbox.Processor and *schedule.Processor, which it runs;
//   - *notify.Notifier, which it runs; it is nil unless the application provides a notify.Listener.
//     With it, processes wake each other;
//   - *amotel.Telemetry (amotel is this library's package otel), which is nil if the application
//     has no telemetry: see below;
//   - *inbox.Runner and *relay.Runner, which it runs; they are nil without [Receivers] and
//     [LogForwarders];
//   - *ops.Service, for operators, and an *ops.Runner, which it runs and which carries out their
//     operations.
//
// With [EventLog] it also runs a *projection.Runner. The rules for processors below apply to it,
// too.
//
// The application must provide a *bun.DB. It may provide [ConsumeMiddleware], [OuterMiddleware],
// [ProduceMiddleware], middleware.OnPoison, *slog.Logger, notify.Listener, and bus.RegistryConfig,
// outbox.ProducerConfig, outbox.ProcessorConfig, schedule.SchedulerConfig,
// schedule.ProcessorConfig, notify.NotifierConfig, inbox.RunnerConfig, relay.RunnerConfig,
// ops.Config (whose DB and Registry it fills in) and amotel.TelemetryConfig, each as a value. fx
// matches by exact type: it finds a *slog.Logger, and a pointer to a configuration is an error.
// Give Module to an application once. It is immutable.
//
// # Start and stop
//
// fx runs OnStart hooks in the order in which they were appended, and OnStop hooks in reverse.
// Module appends two:
//
//  1. With [Migrate], the migration. Its hook is appended before any constructor gets one of the
//     values above (except telemetry), and after the hooks of the *bun.DB. So it runs before every
//     hook of a constructor or Invoke that takes one of them.
//  2. The start of the processors, in an Invoke. fx calls the Invokes of fx.Modules first, in the
//     order listed, then those given to fx.New itself, in the order listed. So give Module to
//     fx.New itself, not to an fx.Module. List it after whatever consumers need while they run,
//     such as application tables and caches. List what depends on it after it, such as an HTTP
//     server, which then starts last and stops first.
//
// Use the values from OnStart on. In a constructor the tables may not exist yet, and the Producer,
// the Scheduler, the Store and the admin.Client may still be empty; then their methods return an
// error. This is why constructors of consumers may take them.
//
// OnStart returns the errors of the processors' Check methods. OnStop stops claiming and lets
// running consumers finish for ProcessorConfig.DrainTimeout (10 s), or for four fifths of what is left
// of fx's stop timeout (15 s by default, see fx.StopTimeout). The last fifth is reserved for the hooks
// that stop later, because fx skips them when time runs out. Consumers that still run are then cancelled, and
// their messages released. A processor that ends by itself has failed: it shuts the application
// down with exit code 1, and OnStop returns its error.
//
// # Telemetry
//
// Provide a trace.TracerProvider for spans, a metric.MeterProvider for metrics, or a non-zero
// amotel.TelemetryConfig. Whatever is not provided defaults to OpenTelemetry's global one. With
// none of the three there is no telemetry, even if providers are registered globally; to use those,
// provide OpenTelemetry's otel.GetTracerProvider and otel.GetMeterProvider. Provide a provider as
// the interface: fx does not match the SDK's *trace.TracerProvider, so that alone is an error. At
// start, a line at level Info logs what is on.
//
// All chains are wired, the queues are sampled every 15 s, and processors poll under amotel.Quiet.
// Module does not shut providers down. The application's ProcessorConfig.Middleware replaces the
// whole consume chain, including telemetry: put Telemetry.Consume in it.
var Module = module() // immutable

func module() fx.Option {
	return fx.Options(
		fx.Module(
			"asyncmonolith",
			fx.Provide(
				newMigration, newHandles, makeRegistry, newRegistry, newTelemetry, newProcessor, newScheduleProcessor, newNotifier,
				newParkedConsumers, newReceiverRunner, newLogForwarderRunner, newService, newOperationRunner,
			),
			fx.Invoke(refusePointers, refuseConcrete, refuseMistakes, fill),
		),
		fx.Invoke(run), // not in the fx.Module, whose Invokes come before the application's
	)
}

// ConsumeMiddleware is the application's own layers of the consume chain, first outermost. They
// run inside the ready-made ones, directly around the consumer. It is one ordered value and not a
// group, because fx shuffles groups. Together with an outbox.ProcessorConfig.Middleware, which is
// the whole chain, it is an error. For another Backoff, provide a ProcessorConfig with a
// Middleware made by middleware.Default. Layers are called concurrently.
type ConsumeMiddleware []bus.Middleware

// OuterMiddleware is layers of the consume chain that see every run and its final outcome, first
// outermost: see OuterMiddleware of middleware.Options. Together with an
// outbox.ProcessorConfig.Middleware it is an error. Layers are called concurrently.
type OuterMiddleware []bus.Middleware

// ProduceMiddleware is the application's own layers of the produce chain, first outermost.
// Together with an outbox.ProducerConfig.Middleware it is an error. Layers are called
// concurrently.
type ProduceMiddleware []bus.ProduceMiddleware

// migrating requests migrations at start.
type migrating struct{}

// Migrate migrates the library's tables when the application starts, before anything uses them:
// see [Module]. Any number of instances may run it at once. It is limited by fx's start timeout.
// Without it the tables must exist, or the start fails with outbox.ErrSchemaOutdated: see
// outbox.Migrate. Without Module it has no effect.
func Migrate() fx.Option { return fx.Supply(&migrating{}) }
