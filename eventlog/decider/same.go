package decider

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
)

// same reports whether two values are equal as states: nil and empty are equal for maps and slices,
// a type's own method Equal decides, and fields that JSON never encodes do not count.
func same(a, b reflect.Value) bool {
	if a.IsValid() != b.IsValid() || a.IsValid() && a.Type() != b.Type() {
		return false
	}
	if !a.IsValid() {
		return true
	}
	if equal, ok := equalMethod(a, b); ok {
		return equal
	}
	switch a.Kind() {
	case reflect.Pointer, reflect.Interface:
		return a.IsNil() == b.IsNil() && (a.IsNil() || same(a.Elem(), b.Elem()))
	case reflect.Map:
		return sameMap(a, b)
	case reflect.Slice, reflect.Array:
		for i := range min(a.Len(), b.Len()) {
			if !same(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return a.Len() == b.Len()
	case reflect.Struct:
		return sameStruct(a, b)
	case reflect.Float32, reflect.Float64:
		return a.Float() == b.Float() || math.IsNaN(a.Float()) && math.IsNaN(b.Float())
	case reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return a.IsZero() && b.IsZero()
	default:
		return a.Equal(b)
	}
}

// equalMethod calls a method Equal of the values' type, such as that of time.Time.
func equalMethod(a, b reflect.Value) (equal, ok bool) {
	if !a.CanInterface() || a.Kind() == reflect.Pointer && (a.IsNil() || b.IsNil()) {
		return false, false
	}
	method := a.MethodByName("Equal")
	if !method.IsValid() || method.Type() != reflect.FuncOf([]reflect.Type{a.Type()}, []reflect.Type{reflect.TypeFor[bool]()}, false) {
		return false, false
	}
	return method.Call([]reflect.Value{b})[0].Bool(), true
}

func sameMap(a, b reflect.Value) bool {
	if a.Len() != b.Len() {
		return false
	}
	for _, key := range a.MapKeys() {
		if other := b.MapIndex(key); !other.IsValid() || !same(a.MapIndex(key), other) {
			return false
		}
	}
	return true
}

// sameStruct compares fields. It compares the text of a type that encodes itself, unless its
// methods may be those of an embedded field: these lose the other fields.
func sameStruct(a, b reflect.Value) bool {
	embeds := false
	for i := range a.NumField() {
		embeds = embeds || a.Type().Field(i).Anonymous
	}
	if _, own := reflect.New(a.Type()).Interface().(json.Marshaler); own && !embeds && a.CanInterface() {
		one, errOne := json.Marshal(a.Interface())
		other, errOther := json.Marshal(b.Interface())
		return errOne == nil && errOther == nil && bytes.Equal(one, other)
	}
	for i := range a.NumField() {
		if a.Type().Field(i).Tag.Get("json") != "-" && !same(a.Field(i), b.Field(i)) {
			return false
		}
	}
	return true
}
