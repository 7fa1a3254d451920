package fxmodule

import (
	"errors"
	"log/slog"

	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// Module provides *bus.Registry, *outbox.Producer, *outbox.Processor,
// *schedule.Scheduler, *schedule.Processor and *poison.Store, and runs the
// processors. The application must provide a *bun.DB, and may provide
// [ConsumeChain], [ProduceChain], *slog.Logger, trace.TracerProvider,
// metric.MeterProvider, and any of bus.RegistryConfig, outbox.ProducerConfig,
// outbox.ProcessorConfig, schedule.Config and schedule.ProcessorConfig.
//
// Without a tracer or meter provider there is no telemetry. It is immutable.
var Module = fx.Module("asyncmonolith",
	fx.Provide(newRegistry, newTelemetry, newProducer, newProcessor, newScheduler, newScheduleProcessor, poison.NewStore),
	fx.Invoke(run),
)

// ConsumeChain is the application's own layers of the consume chain, first
// outermost: they run inside the ready-made ones, right around the consumer. It
// is one ordered value and not a group, since fx shuffles groups.
type ConsumeChain []bus.Middleware

// ProduceChain is the application's own layers of the produce chain, first
// outermost.
type ProduceChain []bus.SendMiddleware

// migrating asks for migrations at start.
type migrating struct{}

// Migrate has the application bring the library's tables up to date before it
// starts. Without it they must be there: see outbox.Migrate.
func Migrate() fx.Option { return fx.Supply(&migrating{}) }

type registryParams struct {
	fx.In

	Consumers []bus.Consumer     `group:"asyncmonolith.consumers"`
	Config    bus.RegistryConfig `optional:"true"`
}

func newRegistry(p registryParams) (*bus.Registry, error) {
	return p.Config.NewRegistry(p.Consumers...)
}

type telemetryParams struct {
	fx.In

	Tracers trace.TracerProvider `optional:"true"`
	Meters  metric.MeterProvider `optional:"true"`
}

// newTelemetry returns nil when the application has no telemetry.
func newTelemetry(p telemetryParams) (*amotel.Telemetry, error) {
	if p.Tracers == nil && p.Meters == nil {
		return nil, nil
	}
	return amotel.New(amotel.Config{TracerProvider: p.Tracers, MeterProvider: p.Meters})
}

type producerParams struct {
	fx.In

	Registry  *bus.Registry
	Telemetry *amotel.Telemetry
	Chain     ProduceChain          `optional:"true"`
	Config    outbox.ProducerConfig `optional:"true"`
	Logger    *slog.Logger          `optional:"true"`
}

func newProducer(p producerParams) (*outbox.Producer, error) {
	config := p.Config
	if config.User != nil && p.Chain != nil {
		return nil, errors.New("fxmodule: both fxmodule.ProduceChain and outbox.ProducerConfig.User are provided: one of them is allowed")
	}
	if config.User == nil {
		config.User = p.Chain
	}
	if config.Logger == nil {
		config.Logger = p.Logger
	}
	if config.Telemetry == nil && p.Telemetry != nil {
		config.Telemetry = p.Telemetry.Produce()
	}
	return outbox.NewProducer(p.Registry, config)
}

type processorParams struct {
	fx.In

	DB        *bun.DB
	Registry  *bus.Registry
	Telemetry *amotel.Telemetry
	Chain     ConsumeChain           `optional:"true"`
	Config    outbox.ProcessorConfig `optional:"true"`
	Logger    *slog.Logger           `optional:"true"`
}

func newProcessor(p processorParams) (*outbox.Processor, error) {
	config := p.Config
	if config.Chain != nil && p.Chain != nil {
		return nil, errors.New("fxmodule: both fxmodule.ConsumeChain and outbox.ProcessorConfig.Chain are provided: one of them is allowed")
	}
	if config.Logger == nil {
		config.Logger = p.Logger
	}
	if config.Chain == nil {
		options := middleware.Options{Logger: config.Logger, User: p.Chain}
		if p.Telemetry != nil {
			options.Telemetry = p.Telemetry.Consume()
		}
		config.Chain = middleware.Default(options)
	}
	return outbox.NewProcessor(p.DB, p.Registry, config)
}

type schedulerParams struct {
	fx.In

	Registry  *bus.Registry
	Telemetry *amotel.Telemetry
	Config    schedule.Config `optional:"true"`
}

func newScheduler(p schedulerParams) (*schedule.Scheduler, error) {
	config := p.Config
	if config.Headers == nil && p.Telemetry != nil {
		config.Headers = p.Telemetry.Headers
	}
	return schedule.NewScheduler(p.Registry, config)
}

type scheduleProcessorParams struct {
	fx.In

	DB        *bun.DB
	Registry  *bus.Registry
	Producer  *outbox.Producer
	Telemetry *amotel.Telemetry
	Config    schedule.ProcessorConfig `optional:"true"`
	Logger    *slog.Logger             `optional:"true"`
}

func newScheduleProcessor(p scheduleProcessorParams) (*schedule.Processor, error) {
	config := p.Config
	if config.Logger == nil {
		config.Logger = p.Logger
	}
	if config.Telemetry == nil && p.Telemetry != nil {
		config.Telemetry = p.Telemetry.Fire()
	}
	return schedule.NewProcessor(p.DB, p.Registry, p.Producer, config)
}
