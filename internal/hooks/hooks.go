package hooks

import (
	"fmt"
	"maps"
)

// Functions are functions by their names.
type Functions map[string]any

// provided are the functions of all packages. They are immutable once the packages are initialized.
var provided = make(Functions)

// Provide is called by the declaration of a blank variable: the library has no init functions.
func Provide(functions Functions) struct{} {
	maps.Copy(provided, functions)
	return struct{}{}
}

// Function returns a function of a package that is imported. It is called while the caller's
// package is initialized, and panics if the function is missing or of another type.
func Function[F any](name string) F {
	f, ok := provided[name].(F)
	if !ok {
		panic(fmt.Sprintf("hooks: %s is %T, not %T", name, provided[name], f))
	}
	return f
}
