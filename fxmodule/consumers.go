package fxmodule

import (
	"fmt"
	"reflect"

	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

const consumersGroup = `group:"asyncmonolith.consumers"`

// Consumers registers consumers. Each argument is a bus.Consumer, or a
// constructor that returns a bus.Consumer or a []bus.Consumer, with an error or
// without; its parameters are provided by the application. Anything else is an
// error of the application that names the argument. Consumers may be called any
// number of times, from any number of modules.
func Consumers(consumers ...any) fx.Option {
	options := make([]fx.Option, len(consumers))
	for i, c := range consumers {
		options[i] = consumerOption(i, c)
	}
	return fx.Options(options...)
}

func consumerOption(i int, c any) fx.Option {
	if consumer, ok := c.(bus.Consumer); ok {
		return fx.Supply(fx.Annotate(consumer, fx.ResultTags(consumersGroup)))
	}
	group, err := groupFor(reflect.TypeOf(c))
	if err == nil && reflect.ValueOf(c).IsNil() {
		err = fmt.Errorf("is nil")
	}
	if err != nil {
		return fx.Error(fmt.Errorf("fxmodule: Consumers argument %d (%T) %w: a bus.Consumer, or a constructor of bus.Consumer or []bus.Consumer is allowed", i, c, err))
	}
	return fx.Provide(fx.Annotate(c, fx.ResultTags(group)))
}

// groupFor returns the tag under which a constructor's result joins the group.
func groupFor(t reflect.Type) (string, error) {
	switch {
	case t == nil || t.Kind() != reflect.Func:
		return "", fmt.Errorf("is no constructor")
	case t.NumOut() == 0 || t.NumOut() > 2:
		return "", fmt.Errorf("returns %d values", t.NumOut())
	case t.NumOut() == 2 && t.Out(1) != reflect.TypeFor[error]():
		return "", fmt.Errorf("returns %s as its second value, not an error", t.Out(1))
	}
	switch t.Out(0) {
	case reflect.TypeFor[bus.Consumer]():
		return consumersGroup, nil
	case reflect.TypeFor[[]bus.Consumer]():
		return `group:"asyncmonolith.consumers,flatten"`, nil
	}
	return "", fmt.Errorf("returns %s", t.Out(0))
}
