package testapp

import (
	"context"

	"github.com/uptrace/bun"
)

// QueryHook is called before every statement.
type QueryHook func(ctx context.Context, query string)

// BeforeQuery makes it a hook of bun.
func (h QueryHook) BeforeQuery(ctx context.Context, e *bun.QueryEvent) context.Context {
	h(ctx, e.Query)
	return ctx
}

// AfterQuery makes it a hook of bun.
func (QueryHook) AfterQuery(context.Context, *bun.QueryEvent) {}
