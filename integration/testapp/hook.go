package testapp

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// QueryHook is a hook of bun that calls fn before every statement, with the text of what
// was prepared where that is executed.
func QueryHook(fn func(ctx context.Context, query string)) bun.QueryHook {
	return &queryHook{fn: fn}
}

type queryHook struct {
	fn       func(ctx context.Context, query string)
	prepared testdb.Prepared
}

// BeforeQuery implements bun.QueryHook.
func (h *queryHook) BeforeQuery(ctx context.Context, e *bun.QueryEvent) context.Context {
	h.fn(ctx, h.prepared.Text(e.Query))
	return ctx
}

// AfterQuery implements bun.QueryHook.
func (*queryHook) AfterQuery(context.Context, *bun.QueryEvent) {}
