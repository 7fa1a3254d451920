package fxmodule

import (
	"cmp"
	"log/slog"

	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/notify"
	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

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

type listenerParams struct {
	fx.In

	Listener notify.Listener       `optional:"true"`
	Config   notify.NotifierConfig `optional:"true"`
}

type notifierParams struct {
	fx.In

	DB       database
	Registry *bus.Registry
	Given    listenerParams
	Logger   *slog.Logger `optional:"true"`
}

// newNotifier returns nil when the application has no listener.
func newNotifier(p notifierParams) (*notify.Notifier, error) {
	config, listener := p.Given.Config, p.Given.Listener
	if listener != nil && config.Listener != nil {
		return nil, bothProvided("notify.Listener", "notify.NotifierConfig.Listener")
	}
	config.Listener = cmp.Or(config.Listener, listener)
	if config.Listener == nil {
		return nil, nil
	}
	config.Logger = cmp.Or(config.Logger, p.Logger)
	return notify.NewNotifier(p.DB.db, p.Registry, config)
}
