package fxmodule

import (
	"errors"
	"fmt"
	"reflect"

	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// The groups in which [Module] collects consumers: one by one, and by the list.
const (
	consumersGroup     = "asyncmonolith.consumers"
	consumerListsGroup = consumersGroup + ",flatten"
)

// Consumers registers consumers. Each argument is a bus.Consumer, a
// []bus.Consumer, or a constructor that returns either, with an error or
// without; its parameters are provided by the application. Anything else is an
// error of the application that names the argument. Consumers may be called any
// number of times, from any number of modules; without [Module] it has no effect.
//
// A constructor may take *outbox.Producer, *schedule.Scheduler and *poison.Store,
// for its consumers to use when they run; see [Module] for when they are ready.
// What else Module provides is made from the consumers, so to take it is a cycle.
//
// Results and parameters match by their exact types, as always with fx: a
// constructor that returns a named slice type is refused.
func Consumers(consumers ...any) fx.Option {
	options := make([]fx.Option, len(consumers))
	for i, c := range consumers {
		options[i] = consumerOption(i, c)
	}
	return fx.Options(options...)
}

// consumerOption provides with fx.Annotated, not fx.Annotate, which wraps a
// constructor and so hides its name in fx's errors.
func consumerOption(i int, c any) fx.Option {
	switch c := c.(type) {
	case bus.Consumer:
		return fx.Provide(fx.Annotated{Group: consumersGroup, Target: func() bus.Consumer { return c }})
	case []bus.Consumer:
		return fx.Provide(fx.Annotated{Group: consumerListsGroup, Target: func() []bus.Consumer { return c }})
	}
	group, err := groupFor(reflect.TypeOf(c))
	if err == nil && reflect.ValueOf(c).IsNil() {
		err = errors.New("is nil")
	}
	if err != nil {
		return fx.Error(fmt.Errorf("fxmodule: Consumers argument %d (%T) %w: a bus.Consumer, a []bus.Consumer, or a constructor of either is allowed", i, c, err))
	}
	return fx.Provide(fx.Annotated{Group: group, Target: c})
}

// groupFor returns the group that a constructor's result joins.
func groupFor(t reflect.Type) (string, error) {
	switch {
	case t == nil || t.Kind() != reflect.Func:
		return "", errors.New("is no constructor")
	case t.NumOut() == 0 || t.NumOut() > 2:
		return "", fmt.Errorf("returns %d values", t.NumOut())
	case t.NumOut() == 2 && t.Out(1) != reflect.TypeFor[error]():
		return "", fmt.Errorf("returns %s as its second value, not an error", t.Out(1))
	}
	switch t.Out(0) {
	case reflect.TypeFor[bus.Consumer]():
		return consumersGroup, nil
	case reflect.TypeFor[[]bus.Consumer]():
		return consumerListsGroup, nil
	}
	return "", fmt.Errorf("returns %s", t.Out(0))
}
