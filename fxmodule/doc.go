// Package fxmodule wires AsyncMonolith into an application built with go.uber.org/fx. It makes the
// registry, the producer, the scheduler, the store of poisoned messages and the processors. It
// starts the processors with the application and drains them when it stops.
//
//	fx.New(
//		fx.Provide(NewDB), // a *bun.DB, or a *sql.DB and a schema.Dialect
//		fxmodule.Module,
//		fxmodule.Consumers(NewReceiptConsumer),
//	)
//
// Everything it does can also be done without fx. It does not close the database or shut down
// telemetry providers.
//
// # Start and stop
//
// fx runs OnStart hooks in the order in which they were appended, and OnStop hooks in reverse.
// [Module] appends two:
//
//  1. With [Migrate], the migration. Its hook is appended before any constructor gets one of the
//     values that Module provides (except telemetry), and after the hooks of the database. So it
//     runs before every hook of a constructor or Invoke that takes one of them.
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
// running consumers finish for ProcessorConfig.DrainTimeout (10 s), and functions of projections for
// projection.RunnerConfig.DrainTimeout (10 s), or for four fifths of what is left of fx's stop
// timeout (15 s by default, see fx.StopTimeout), whichever is shorter. The last fifth is reserved for
// the hooks that stop later, because fx skips them when time runs out. Consumers and functions that
// still run are then cancelled. Their messages are released, and their events are applied again
// later. If something still runs after half of the last fifth, OnStop returns an error that names it
// and fx goes on with the next hook. A processor that ends by itself has failed: it shuts the
// application down with exit code 1, and OnStop returns its error.
//
// # Telemetry
//
// Provide a trace.TracerProvider for spans, a metric.MeterProvider for metrics, or a non-zero
// amotel.TelemetryConfig (amotel is this library's package otel). A missing provider defaults to
// OpenTelemetry's global one. With none of the three there is no telemetry, even if providers are
// registered globally; to use those, provide OpenTelemetry's otel.GetTracerProvider and
// otel.GetMeterProvider. Provide a provider as the interface: fx does not convert the SDK's
// *trace.TracerProvider; providing only that is an error. At start, a line at level Info logs what
// is on.
//
// Telemetry then wraps all chains, and samples the queues every 15 s. Processors poll under
// amotel.Quiet. The application's ProcessorConfig.Middleware replaces the whole consume chain,
// including telemetry: put Telemetry.Consume in it.
package fxmodule
