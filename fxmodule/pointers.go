package fxmodule

import (
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
}

// refuseConcrete returns an error if providers of OpenTelemetry's SDK are not provided as
// interfaces and telemetry would therefore be off. It reads fx's graph, because this module does
// not import the SDK.
func refuseConcrete(telemetry telemetryParams, graph fx.DotGraph) error {
	if telemetry != (telemetryParams{}) {
		return nil
	}
	for _, concrete := range []string{"*trace.TracerProvider", "*metric.MeterProvider"} {
		if strings.Contains(string(graph), concrete) {
			return fmt.Errorf("fxmodule: the SDK's %s is provided, and no telemetry is on: provide it as OpenTelemetry's interface, "+
				"with fx.As(new(%s)), or provide an amotel.TelemetryConfig", concrete, strings.TrimPrefix(concrete, "*"))
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
		default:
			return fmt.Errorf("fxmodule: %s is provided: provide fxmodule.%s", given.Type(), all.Type().Field(i).Name)
		}
	}
	return nil
}
