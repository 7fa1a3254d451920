package fxmodule

import (
	"errors"
	"fmt"
	"reflect"

	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

const (
	// consumersGroup is the group in which [Module] collects consumers.
	consumersGroup = "asyncmonolith.consumers"
	// flatten makes a group take the elements of a list.
	flatten = ",flatten"
)

// Consumers registers consumers. Each argument is a bus.Consumer, a []bus.Consumer, or a
// constructor that returns either, with or without an error; the application provides its
// parameters. Any other argument makes the application fail with an error that names it. Consumers
// may be called any number of times, from any number of modules; without [Module] it has no effect.
//
// A constructor may take *outbox.Producer, *admin.Client, *schedule.Scheduler, *poison.Store and
// *eventlog.Log, for its consumers to use when they run. The package comment says when they are
// ready. Everything else that Module provides depends on the consumers, so taking it is a cycle.
//
// As always with fx, results and parameters match by exact type: a constructor that returns a named
// slice type is rejected.
func Consumers(consumers ...any) fx.Option {
	return members[bus.Consumer]("Consumers", consumersGroup, consumers)
}

// members provides values, lists, or constructors of either to a group.
func members[T any](function, group string, all []any) fx.Option {
	options := make([]fx.Option, len(all))
	for i, member := range all {
		options[i] = memberOption[T](function, group, i, member)
	}
	return fx.Options(options...)
}

// memberOption provides a value, a list, or a constructor of either to a group. It uses
// fx.Annotated rather than fx.Annotate, which would hide a constructor's name in fx's errors.
func memberOption[T any](function, group string, i int, member any) fx.Option {
	switch member := member.(type) {
	case T:
		return fx.Provide(fx.Annotated{Group: group, Target: func() T { return member }})
	case []T:
		return fx.Provide(fx.Annotated{Group: group + flatten, Target: func() []T { return member }})
	}
	suffix, err := groupFor[T](reflect.TypeOf(member))
	if err == nil && reflect.ValueOf(member).IsNil() {
		err = errors.New("is nil")
	}
	if err != nil {
		return fx.Error(fmt.Errorf("fxmodule: %s argument %d (%T) %w: %s, []%s or a constructor of either is allowed",
			function, i, member, err, reflect.TypeFor[T](), reflect.TypeFor[T]()))
	}
	return fx.Provide(fx.Annotated{Group: group + suffix, Target: member})
}

// groupFor returns the group suffix for a constructor's result.
func groupFor[T any](t reflect.Type) (string, error) {
	switch {
	case t == nil || t.Kind() != reflect.Func:
		return "", errors.New("is not a constructor")
	case t.NumOut() == 0 || t.NumOut() > 2:
		return "", fmt.Errorf("returns %d values", t.NumOut())
	case t.NumOut() == 2 && t.Out(1) != reflect.TypeFor[error]():
		return "", fmt.Errorf("returns %s as its second value, not an error", t.Out(1))
	}
	switch t.Out(0) {
	case reflect.TypeFor[T]():
		return "", nil
	case reflect.TypeFor[[]T]():
		return flatten, nil
	}
	return "", fmt.Errorf("returns %s", t.Out(0))
}
