package opsaccess

// provided are the hooks, immutable once package ops is initialized.
var provided any

// Provide is called once, by a package variable of package ops. The result is such a variable's value.
func Provide(hooks any) struct{} {
	provided = hooks
	return struct{}{}
}

// Provided returns the hooks of package ops. H must be their type.
func Provided[H any]() H { return provided.(H) }
