package fxmodule

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/notify"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// pointers are configurations and layers that would be ignored, because their types are not those
// that Module takes.
type pointers struct {
	fx.In

	Registry   *bus.RegistryConfig       `optional:"true"`
	Producer   *outbox.ProducerConfig    `optional:"true"`
	Processor  *outbox.ProcessorConfig   `optional:"true"`
	Scheduler  *schedule.SchedulerConfig `optional:"true"`
	Schedules  *schedule.ProcessorConfig `optional:"true"`
	Telemetry  *amotel.TelemetryConfig   `optional:"true"`
	Notify     *notify.NotifierConfig    `optional:"true"`
	Log        *eventlog.LogConfig       `optional:"true"`
	Projection *projection.RunnerConfig  `optional:"true"`
	Receive    *inbox.RunnerConfig       `optional:"true"`
	Relay      *relay.RunnerConfig       `optional:"true"`
	Service    *ops.Config               `optional:"true"`
	Consume    *ConsumeMiddleware        `optional:"true"`
	Outer      *OuterMiddleware          `optional:"true"`
	Produce    *ProduceMiddleware        `optional:"true"`

	ConsumeMiddleware []bus.Middleware        `optional:"true"`
	ProduceMiddleware []bus.ProduceMiddleware `optional:"true"`

	OnPoison func(ctx context.Context, m *bus.Message, reason string, err error) `optional:"true"`
}

// refuseConcrete returns an error if providers of OpenTelemetry's SDK, or pgxnotify's listener, are
// not provided as interfaces and would therefore be ignored. It reads fx's graph, because this
// module does not import their packages.
func refuseConcrete(telemetry telemetryParams, listener listenerParams, graph fx.DotGraph) error {
	off, deaf := telemetry == (telemetryParams{}), listener.Listener == nil && listener.Config.Listener == nil
	for _, c := range []struct {
		ignored                 bool
		concrete, wants, config string
	}{
		{off, "*trace.TracerProvider", "trace.TracerProvider", "amotel.TelemetryConfig"},
		{off, "*metric.MeterProvider", "metric.MeterProvider", "amotel.TelemetryConfig"},
		{deaf, "*pgxnotify.Listener", "notify.Listener", "notify.NotifierConfig"},
	} {
		if c.ignored && strings.Contains(string(graph), c.concrete) {
			return fmt.Errorf("fxmodule: %s is provided, which Module ignores: provide it as an interface, with fx.As(new(%s)), "+
				"or provide %s", c.concrete, c.wants, c.config)
		}
	}
	return nil
}

func refusePointers(p pointers) error {
	all := reflect.ValueOf(p)
	for i := 1; i < all.NumField(); i++ { // after fx.In
		switch given := all.Field(i); {
		case given.IsNil():
		case given.Kind() == reflect.Pointer:
			return fmt.Errorf("fxmodule: %s is provided: provide the value, %s", given.Type(), given.Type().Elem())
		case given.Kind() == reflect.Func:
			return fmt.Errorf("fxmodule: %s is provided: provide middleware.%s", given.Type(), all.Type().Field(i).Name)
		default:
			return fmt.Errorf("fxmodule: %s is provided: provide fxmodule.%s", given.Type(), all.Type().Field(i).Name)
		}
	}
	return nil
}
