package bus

import (
	"fmt"
	"reflect"

	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
)

// Payload is what an application produces and a consumer receives: a plain struct, passed by
// value.
//
// PayloadType returns the stable name under which the payload is stored. It is called on the zero
// value, so it must return a constant. While this name stays the same, the Go type can be renamed
// without losing stored messages.
//
// A payload may have two more methods: OrderingKey, see outbox.OrderingKey, and Upcasters, see
// [Upcaster].
type Payload interface {
	PayloadType() string
}

// payloadTypeOf returns the stored name of T's zero value. It returns an error rather than
// panicking if T has none.
func payloadTypeOf[T Payload]() (name string, goType reflect.Type, err error) {
	goType = reflect.TypeFor[T]()
	switch goType.Kind() {
	case reflect.Pointer:
		return "", goType, fmt.Errorf("payload %s is a pointer: register and produce the struct itself", goType)
	case reflect.Interface:
		return "", goType, fmt.Errorf("payload %s is an interface: a consumer needs one concrete type", goType)
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("payload %s: PayloadType panicked on the zero value: %v", goType, r)
		}
	}()
	var zero T
	name = zero.PayloadType()
	if err := limits.CheckName(name); err != nil {
		return "", goType, fmt.Errorf("payload %s: stored name %q %w", goType, name, err)
	}
	return name, goType, nil
}
