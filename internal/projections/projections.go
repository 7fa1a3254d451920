package projections

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/hooks"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Admin inspects the projections of all programs that share the tables, and resumes halted ones.
// It needs no projection definitions; operations that call their functions are on a projection.Runner.
//
// It holds no database handle, starts nothing, and is safe for concurrent use. Make it with
// [NewAdmin]: methods of the zero value return an error. On MariaDB, which has no event log, all
// methods return errors.ErrUnsupported.
type Admin struct{ stores store.Stores }

// NewAdmin makes an admin for the registry's tables. It returns an error only for a nil registry.
func NewAdmin(registry *bus.Registry) (*Admin, error) {
	if registry == nil {
		return nil, errors.New("projection: NewAdmin: the registry is nil")
	}
	return &Admin{store.All(registry)}, nil
}

var errNotMade = errors.New("the admin was not made by NewAdmin")

// State is the progress of a shard of a projection's version. Times are in UTC, on the database's
// clock.
type State struct {
	Name     string `json:"name"`
	Version  int    `json:"version"`
	Shard    int    `json:"shard"`
	Shards   int    `json:"shards"`
	Active   bool   `json:"active"`   // it is of the version to read: see projection.Runner.Active
	Position int64  `json:"position"` // of the last event passed
	Head     int64  `json:"head"`     // of the last event in the log
	// Status is running, halted (until [Admin.Resume]), or retired (replaced by another version).
	Status    string    `json:"status"`
	Attempts  int       `json:"attempts"`             // failed attempts at the event after Position
	LastError string    `json:"last_error,omitempty"` // of these attempts
	NextAt    time.Time `json:"next_at,omitzero"`     // earliest next attempt
	MovedAt   time.Time `json:"moved_at,omitzero"`    // when Position last advanced
}

// mostStates limits the listed shards.
const mostStates = 10_000

// States lists the shards of all versions of all projections, by name, 10,000 at most. It includes
// log forwarders and replays, which also have checkpoints.
func (a *Admin) States(ctx context.Context, db bun.IDB) ([]State, error) {
	found, err := store.Listed(a.stores, db, errNotMade, func(st *store.Store, db bun.IDB) ([]store.Subscription, error) {
		if err := st.Events(); err != nil {
			return nil, err
		}
		return st.Readers.All(ctx, db, mostStates)
	}, newState)
	return found, dberr.Wrap(err, "projection: states")
}

func newState(row store.Subscription) State {
	return State{
		Name: row.Name, Version: row.Version, Shard: row.Shard, Shards: row.Shards, Active: row.Version == max(row.Active, 1),
		Position: row.Position, Head: row.Head, Status: row.Status, Attempts: row.Attempts, LastError: row.LastError,
		NextAt: row.NextAt.Time, MovedAt: row.MovedAt.Time,
	}
}

// Parked lists a projection version's parked events after a position, in order. Pass the position
// of the previous page's last event, or 0. The limit is 1 to 1000; otherwise the error is
// bus.ErrInvalidOption.
func (a *Admin) Parked(ctx context.Context, db bun.IDB, name string, version int, after int64, limit int) ([]projection.Parked, error) {
	found, err := store.Listed(a.stores, db, errNotMade, func(st *store.Store, db bun.IDB) ([]store.Parked, error) {
		err := errors.Join(st.Events(), limits.CheckKey("name", name))
		if err == nil && (limit < 1 || limit > 1000) {
			err = fmt.Errorf("%d events: %w: 1 to 1000 are allowed", limit, bus.ErrInvalidOption)
		}
		if err != nil {
			return nil, err
		}
		return st.Readers.Parked(ctx, db, name, version, after, limit)
	}, newParked)
	return found, dberr.Wrap(err, "projection: parked events of %q", name)
}

// Resume is like projection.Runner.Resume.
func (a *Admin) Resume(ctx context.Context, db bun.IDB, name string, version int) (int, error) {
	st, db, err := a.stores.Of(db, errNotMade)
	if err == nil {
		err = st.Events()
	}
	if err != nil {
		return 0, dberr.Wrap(err, "projection: resume %q", name)
	}
	return resume(ctx, st, db, name, version)
}

// Functions of package projection; immutable.
var (
	// Newest returns the newest version of a projection that the runner has, and whether it has any.
	Newest = hooks.Function[func(r *projection.Runner, name string) (version int, ok bool)]("projection.Newest")

	// Unassigned returns the number of committed events without a position, up to 10,000.
	Unassigned = hooks.Function[func(ctx context.Context, r *projection.Runner) (int64, error)]("projection.Unassigned")

	newParked = hooks.Function[func(row store.Parked) projection.Parked]("projection.Parked")

	resume = hooks.Function[func(ctx context.Context, s *store.Store, db bun.IDB, name string, version int) (int, error)]("projection.Resume")
)
