package fxmodule

import (
	"cmp"
	"log/slog"
	"slices"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/notify"
	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

type registryParams struct {
	fx.In

	Migration *migration
	DB        database
	Consumers []bus.Consumer     `group:"asyncmonolith.consumers"`
	Config    bus.RegistryConfig `optional:"true"`
	Types     *eventlog.Types    `optional:"true"`
}

// made is a registry or its mistakes. A constructor's error would follow the names of all its
// dependents; [refuseMistakes] returns it alone.
type made struct {
	registry *bus.Registry
	err      error
}

func makeRegistry(p registryParams) (m *made) {
	m = new(made)
	switch {
	case p.Types != nil && p.Config.Events != nil:
		m.err = bothProvided("fxmodule.EventLog", "bus.RegistryConfig.Events")
		return m
	case p.Types != nil:
		p.Config.Events = p.Types
	}
	if p.Config.Dialect == nil {
		p.Config.Dialect = p.DB.db.Dialect()
	}
	// fx shuffles groups, and mistakes are easier to compare in a fixed order.
	slices.SortStableFunc(p.Consumers, func(a, b bus.Consumer) int {
		return cmp.Or(cmp.Compare(a.Name(), b.Name()), cmp.Compare(a.PayloadType(), b.PayloadType()))
	})
	m.registry, m.err = p.Config.NewRegistry(p.Consumers...)
	return m
}

func newRegistry(m *made) (*bus.Registry, error) { return m.registry, m.err }

func refuseMistakes(m *made) error { return m.err }

type telemetryParams struct {
	fx.In

	Tracers trace.TracerProvider   `optional:"true"`
	Meters  metric.MeterProvider   `optional:"true"`
	Config  amotel.TelemetryConfig `optional:"true"`
}

// newTelemetry returns nil when the application has no telemetry.
func newTelemetry(p telemetryParams) (*amotel.Telemetry, error) {
	config := p.Config
	switch {
	case p.Tracers != nil && config.TracerProvider != nil:
		return nil, bothProvided("trace.TracerProvider", "amotel.TelemetryConfig.TracerProvider")
	case p.Meters != nil && config.MeterProvider != nil:
		return nil, bothProvided("metric.MeterProvider", "amotel.TelemetryConfig.MeterProvider")
	}
	config.TracerProvider = cmp.Or(config.TracerProvider, p.Tracers)
	config.MeterProvider = cmp.Or(config.MeterProvider, p.Meters)
	if config == (amotel.TelemetryConfig{}) {
		return nil, nil
	}
	return amotel.NewTelemetry(config)
}

// describe returns where traces or metrics go.
func describe(on, provided bool) string {
	switch {
	case !on:
		return "off"
	case provided:
		return "provided"
	}
	return "global"
}

// base is what most processors and runners are made of.
type base struct {
	fx.In

	DB        database
	Registry  *bus.Registry
	Telemetry *amotel.Telemetry
	Logger    *slog.Logger `optional:"true"`
}

// complete sets the fields of a configuration that the application has left out.
func (b base) complete(
	logger **slog.Logger, telemetry *bus.ProduceMiddleware, layer func(*amotel.Telemetry) bus.ProduceMiddleware,
) {
	*logger = cmp.Or(*logger, b.Logger)
	if *telemetry == nil && b.Telemetry != nil {
		*telemetry = layer(b.Telemetry)
	}
}

type processorParams struct {
	fx.In

	Base     base
	Layers   ConsumeMiddleware      `optional:"true"`
	Outer    OuterMiddleware        `optional:"true"`
	OnPoison middleware.OnPoison    `optional:"true"`
	Config   outbox.ProcessorConfig `optional:"true"`
}

func newProcessor(p processorParams) (*outbox.Processor, error) {
	config := p.Config
	config.Logger = cmp.Or(config.Logger, p.Base.Logger)
	const whole = "outbox.ProcessorConfig.Middleware"
	switch {
	case config.Middleware != nil && p.Layers != nil:
		return nil, bothProvided("fxmodule.ConsumeMiddleware", whole)
	case config.Middleware != nil && p.Outer != nil:
		return nil, bothProvided("fxmodule.OuterMiddleware", whole)
	case config.Middleware != nil && p.OnPoison != nil:
		return nil, bothProvided("middleware.OnPoison", whole)
	case config.Middleware == nil:
		options := middleware.Options{Logger: config.Logger, OuterMiddleware: p.Outer, Middleware: p.Layers, OnPoison: p.OnPoison}
		if p.Base.Telemetry != nil {
			options.Telemetry = p.Base.Telemetry.Consume()
		}
		config.Middleware = middleware.Default(options)
	}
	return outbox.NewProcessor(p.Base.DB.db, p.Base.Registry, config)
}

type scheduleProcessorParams struct {
	fx.In

	Base    base
	Handles *handles
	Config  schedule.ProcessorConfig `optional:"true"`
}

func newScheduleProcessor(p scheduleProcessorParams) (*schedule.Processor, error) {
	config := p.Config
	p.Base.complete(&config.Logger, &config.Telemetry, (*amotel.Telemetry).Fire)
	return schedule.NewProcessor(p.Base.DB.db, p.Base.Registry, p.Handles.producer, config)
}

type notifierParams struct {
	fx.In

	DB       database
	Registry *bus.Registry
	Listener notify.Listener       `optional:"true"`
	Config   notify.NotifierConfig `optional:"true"`
	Logger   *slog.Logger          `optional:"true"`
}

// newNotifier returns nil when the application has no listener.
func newNotifier(p notifierParams) (*notify.Notifier, error) {
	config := p.Config
	if p.Listener != nil && config.Listener != nil {
		return nil, bothProvided("notify.Listener", "notify.NotifierConfig.Listener")
	}
	if config.Listener = cmp.Or(config.Listener, p.Listener); config.Listener == nil {
		return nil, nil
	}
	config.Logger = cmp.Or(config.Logger, p.Logger)
	return notify.NewNotifier(p.DB.db, p.Registry, config)
}
