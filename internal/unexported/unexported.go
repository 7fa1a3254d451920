package unexported

import "reflect"

// functions are by their type, and immutable once the packages are initialized.
var functions = make(map[reflect.Type]any)

// Provide is called once for each type of function, by the declaration of a blank variable: the
// library has no init functions.
func Provide[F any](function F) struct{} {
	functions[reflect.TypeFor[F]()] = function
	return struct{}{}
}

// Func returns the function of that type. It panics if no package provides one.
func Func[F any]() F { return functions[reflect.TypeFor[F]()].(F) }
