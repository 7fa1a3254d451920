package opsaccess

// provided are the hooks, immutable once package ops is initialized.
var provided any

// Provide is called once, by the declaration of a blank variable of package ops: the library has no
// init functions.
func Provide[Session, Runner, Principal, Operation, Action, Change, Content, Overview any](
	hooks Hooks[Session, Runner, Principal, Operation, Action, Change, Content, Overview],
) struct{} {
	provided = hooks
	return struct{}{}
}

// Provided returns the hooks of package ops. It panics if H is not their type.
func Provided[H any]() H { return provided.(H) }
