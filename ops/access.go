package ops

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/hooks"
	"github.com/asyncmonolith/asyncmonolith-go/internal/opsaccess"
	"github.com/asyncmonolith/asyncmonolith-go/internal/pending"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// Package operator gets unexported functions here.
var _ = hooks.Provide(hooks.Functions{
	"ops.Access":    open,
	"ops.CreatedBy": Operation.createdBy,
	"ops.RunOnly":   func(ctx context.Context, r *Runner, id int64) error { return r.runOnly(ctx, id) },
})

// open returns the access for package operator.
func open(s *Session) *opsaccess.Access[Action, Change, Content, summary] {
	d := s.service
	return &opsaccess.Access[Action, Change, Content, summary]{
		Actor: s.who.Name, ReadDB: d.config.ReadDB, Store: d.store, Admin: d.admin, Poisoned: d.poisoned, Schedules: d.schedules,
		Projections: d.projections, Pending: pending.NewReader(d.config.Registry),

		May: func(a Action, consumers ...string) error { return s.mayEach(a, consumers) },
		MaySearch: func(ctx context.Context, f poison.Filter, headers map[string]string) error {
			if len(headers) == 0 {
				return s.maySearchPoisoned(ctx, d.config.ReadDB, f)
			}
			return s.maySearch(ctx, Content{Consumer: f.Consumer, PayloadType: f.PayloadType, Headers: headers})
		},
		Shown: s.shown,
		Text:  s.text,
		Look: func(ctx context.Context, fn func(ctx context.Context, db bun.IDB) error) error {
			_, err := lookFor(ctx, d, lookTime, func(ctx context.Context, db bun.IDB) (struct{}, error) { return struct{}{}, fn(ctx, db) })
			return err
		},
		Change:         s.change,
		ChangeAfter:    s.changeAfter,
		Overview:       s.overview,
		CachedOverview: s.cachedOverview, LastOverview: s.lastOverview,
	}
}
