package rows

import "reflect"

// conversions are by the type of the function, and immutable once the packages are initialized.
var conversions = make(map[reflect.Type]any)

// Provide is called once for each type of function, by the declaration of a blank variable: the
// library has no init functions.
func Provide[F any](conversion F) struct{} {
	conversions[reflect.TypeFor[F]()] = conversion
	return struct{}{}
}

// Conversion returns the function of that type. It panics if no package provides one.
func Conversion[F any]() F { return conversions[reflect.TypeFor[F]()].(F) }
