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
//     has no telemetry: see the package comment;
//   - *inbox.Runner and *relay.Runner, which it runs; they are nil without [Receivers] and
//     [LogForwarders];
//   - *ops.Service, for operators, and an *ops.Runner for their operations, which it runs.
//
// With [EventLog] it also runs a *projection.Runner. It starts and stops like the processors: see
// the package comment.
//
// The application must provide a *bun.DB, or a *sql.DB and a schema.Dialect of Bun. With both, the
// *bun.DB is used. pgxtx.Open makes a *sql.DB of a *pgxpool.Pool. The application may provide
// [ConsumeMiddleware], [OuterMiddleware], [ProduceMiddleware], middleware.OnPoison, *slog.Logger,
// notify.Listener, and bus.RegistryConfig, outbox.ProducerConfig, outbox.ProcessorConfig,
// schedule.SchedulerConfig, schedule.ProcessorConfig, notify.NotifierConfig, inbox.RunnerConfig,
// relay.RunnerConfig, ops.Config (whose DB and Registry it fills in) and amotel.TelemetryConfig, each
// as a value. fx matches by exact type: a pointer to a configuration, a *pgxnotify.Listener alone and
// an OnPoison of a plain func type are errors. Give Module to an application once. It is immutable.
var Module = module() // immutable

func module() fx.Option {
	return fx.Options(
		fx.Module(
			"asyncmonolith",
			fx.Provide(
				newDatabase, newMigration, newHandles, makeRegistry, newRegistry, newTelemetry, newProcessor, newScheduleProcessor, newNotifier,
				newParkedConsumers, newReceiverRunner, newLogForwarderRunner, newService, newOperationRunner,
			),
			fx.Invoke(refusePointers, refuseConcrete, refuseMistakes, fill),
		),
		fx.Invoke(run), // not in the fx.Module, whose Invokes come before the application's
	)
}

// ConsumeMiddleware lists the application's own layers of the consume chain, first outermost. They
// run inside the ready-made ones, directly around the consumer. It is one ordered value and not a
// group, because fx shuffles groups. It cannot be combined with outbox.ProcessorConfig.Middleware,
// which replaces the whole chain. For another Backoff, provide a ProcessorConfig with a Middleware
// made by middleware.Default. Layers are called concurrently.
type ConsumeMiddleware []bus.Middleware

// OuterMiddleware lists layers of the consume chain that see every run and its final outcome, first
// outermost: see OuterMiddleware of middleware.Options. It cannot be combined with
// outbox.ProcessorConfig.Middleware, which replaces the whole chain. Layers are called
// concurrently.
type OuterMiddleware []bus.Middleware

// ProduceMiddleware lists the application's own layers of the produce chain, first outermost. It
// cannot be combined with outbox.ProducerConfig.Middleware. Layers are called concurrently.
type ProduceMiddleware []bus.ProduceMiddleware

// migrating requests migrations at start.
type migrating struct{}

// Migrate migrates the library's tables when the application starts, before anything uses them: see
// the package comment. Any number of instances may run it at once. It is limited by fx's start
// timeout. Without it the tables must exist, or the start fails with outbox.ErrSchemaOutdated: see
// outbox.Migrate. Without Module it has no effect.
func Migrate() fx.Option { return fx.Supply(&migrating{}) }
