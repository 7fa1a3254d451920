package opsaccess

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/pending"
	"github.com/asyncmonolith/asyncmonolith-go/internal/poisoned"
	"github.com/asyncmonolith/asyncmonolith-go/internal/projections"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

const (
	// MostIDs is how many messages one change may name by id.
	MostIDs = 500
	// MostPreviewed is how many matches a preview counts.
	MostPreviewed = 10_000
)

// Access is what an ops.Session may do with its service. The parameters are types of package ops.
type Access[Action, Change, Content, Overview any] struct {
	Actor       string  // name of the principal
	ReadDB      *bun.DB // of ops.Config
	Store       *store.Store
	Admin       *admin.Client
	Pending     *pending.Reader
	Poisoned    *poisoned.Store
	Schedules   *schedule.Scheduler
	Projections *projections.Admin

	// May returns ops.ErrForbidden unless the principal may do the action to each of the consumers.
	May func(a Action, consumers ...string) error
	// MaySearch returns an error unless the principal may search all poisoned messages that the filter matches for its error text, or
	// contents of its consumer and payload type for headers.
	MaySearch func(ctx context.Context, f poison.Filter, headers map[string]string) error
	// Shown returns what the principal may see of a content, and whether it may see any.
	Shown func(ctx context.Context, c Content) (Content, bool)
	// Text returns what the principal may see of an error text, given the rest of its content.
	Text func(ctx context.Context, c Content, text string) string
	// Look runs a query within the service's limits of concurrency and time. It does not check permissions.
	Look func(ctx context.Context, fn func(ctx context.Context, db bun.IDB) error) error
	// Change makes a change and writes its audit row in one transaction. fn gets the ids of the target that it may change: not
	// those of messages about which Principal.Allow could not be asked, because they did not exist.
	Change func(ctx context.Context, c Change, fn func(ctx context.Context, tx bun.Tx, ids []int64) (changed int, err error)) error
	// ChangeAfter is Change for work that cannot be part of one transaction. It writes the audit row first.
	ChangeAfter func(ctx context.Context, c Change, fn func(ctx context.Context, db *bun.DB, ids []int64) (changed int, err error)) error
	// Overview returns an overview that includes each change of the service.
	Overview func(ctx context.Context) (Overview, error)
	// CachedOverview is Overview, but does not wait for an expired overview to be made anew.
	CachedOverview func(ctx context.Context) (o Overview, due bool, err error)
	// LastOverview returns the cached overview, however old, without a query.
	LastOverview func(ctx context.Context) (o Overview, due bool, err error)
}
