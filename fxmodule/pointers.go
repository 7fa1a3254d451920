package fxmodule

import (
	"errors"
	"fmt"
	"reflect"

	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/notify"
	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// pointers are configurations, and layers, that nobody would look at: to fx they are
// other types than the values, or the chains.
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
	Consume    *ConsumeLayers            `optional:"true"`
	Outer      *OuterLayers              `optional:"true"`
	Produce    *ProduceLayers            `optional:"true"`

	ConsumeLayers []bus.Middleware     `optional:"true"`
	ProduceLayers []bus.SendMiddleware `optional:"true"`
}

func refusePointers(p pointers) error {
	for _, given := range []any{
		p.Registry, p.Producer, p.Processor, p.Scheduler, p.Schedules, p.Telemetry, p.Notify, p.Log, p.Projection,
		p.Consume, p.Outer, p.Produce,
	} {
		if value := reflect.ValueOf(given); !value.IsNil() {
			return fmt.Errorf("fxmodule: a %T is provided: provide the value, a %s", given, value.Type().Elem())
		}
	}
	switch {
	case p.ConsumeLayers != nil:
		return errors.New("fxmodule: a []bus.Middleware is provided: provide a fxmodule.ConsumeLayers")
	case p.ProduceLayers != nil:
		return errors.New("fxmodule: a []bus.SendMiddleware is provided: provide a fxmodule.ProduceLayers")
	}
	return nil
}
