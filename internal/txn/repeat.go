package txn

import "context"

type repeatKey struct{}

// WithRepeat says that what runs with the context has lost a conflict before, and is tried again.
func WithRepeat(ctx context.Context) context.Context {
	return context.WithValue(ctx, repeatKey{}, true)
}

// Repeated says whether the context belongs to such a try. Whoever may lose the same conflict once more can then take
// its locks first.
func Repeated(ctx context.Context) bool {
	repeated, _ := ctx.Value(repeatKey{}).(bool)
	return repeated
}
