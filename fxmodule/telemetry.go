package fxmodule

import (
	"cmp"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"

	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
)

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
