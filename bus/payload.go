package bus

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Payload is what an application produces and a consumer receives: a plain
// struct, passed by value.
//
// PayloadType returns the stable name under which the payload is stored. It is
// called on the zero value, so it must return a constant. Renaming the Go type
// never orphans a stored message as long as this name stays.
type Payload interface {
	PayloadType() string
}

// maxNameBytes bounds stored names, so that every dialect can index them.
const maxNameBytes = 255

// CheckText reports why a string cannot be stored in a text column of every
// supported database: it holds a NUL byte or is not valid UTF-8. A nil error
// means it can.
func CheckText(s string) error {
	if i := strings.IndexByte(s, 0); i >= 0 {
		return fmt.Errorf("a NUL byte at offset %d", i)
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("invalid UTF-8")
	}
	return nil
}

// checkName reports why s cannot be the stored name of a consumer or payload.
func checkName(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("is empty")
	case len(s) > maxNameBytes:
		return fmt.Errorf("has %d bytes, at most %d are allowed", len(s), maxNameBytes)
	}
	if err := CheckText(s); err != nil {
		return fmt.Errorf("has %w", err)
	}
	if i := strings.IndexFunc(s, unicode.IsControl); i >= 0 {
		return fmt.Errorf("has a control character at offset %d", i)
	}
	return nil
}

// payloadTypeOf asks the zero value of T for its stored name. A T that cannot
// answer is a wiring mistake, not a panic.
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
	if err := checkName(name); err != nil {
		return "", goType, fmt.Errorf("payload %s: stored name %q %w", goType, name, err)
	}
	return name, goType, nil
}
