package projection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Admin looks at projections without their definitions: those of all programs that work on the
// tables. It resumes those that are halted; what needs their functions is the business of a [Runner].
//
// It holds no database, starts nothing, and is safe for concurrent use. Make one with [NewAdmin]: methods
// of the zero value return an error. Where there is no event log, on MariaDB, all return an errors.ErrUnsupported.
type Admin struct{ stores store.Stores }

// NewAdmin makes an admin for the registry's tables. The only error is a nil registry.
func NewAdmin(registry *bus.Registry) (*Admin, error) {
	if registry == nil {
		return nil, errors.New("projection: NewAdmin: the registry is nil")
	}
	return &Admin{store.All(registry.Tables())}, nil
}

// State is how far a shard of a version of a projection has come. Its instants are in UTC, on the
// database's clock.
type State struct {
	Name     string `json:"name"`
	Version  int    `json:"version"`
	Shard    int    `json:"shard"`
	Shards   int    `json:"shards"`
	Active   bool   `json:"active"`   // it is of the version to read, see [Runner.Active]
	Position int64  `json:"position"` // of the last event that it is past
	Head     int64  `json:"head"`     // of the last event in the log
	// Status is running, halted, which waits for [Admin.Resume], or retired, whose place another version has taken.
	Status    string    `json:"status"`
	Attempts  int       `json:"attempts"`             // failed, at the event after Position
	LastError string    `json:"last_error,omitempty"` // of these
	NextAt    time.Time `json:"next_at,omitzero"`     // it is not tried before
	MovedAt   time.Time `json:"moved_at,omitzero"`    // when it last came further
}

// mostStates is the most shards that are listed.
const mostStates = 10_000

// States lists the shards of all versions of all projections, by name, 10,000 at most. Log relays and
// replays have places of their own in the log, and are listed as well.
func (a *Admin) States(ctx context.Context, db bun.IDB) ([]State, error) {
	st, db, err := a.of(db)
	if err != nil {
		return nil, dberr.Wrap(err, "projection: states")
	}
	rows, err := st.AllSubscriptions(ctx, db, mostStates)
	if err != nil {
		return nil, dberr.Wrap(err, "projection: states")
	}
	return store.Each(rows, func(row store.Subscription) State {
		return State{Name: row.Name, Version: row.Version, Shard: row.Shard, Shards: row.Shards, Active: row.Version == max(row.Active, 1), Position: row.Position, Head: row.Head,
			Status: row.Status, Attempts: row.Attempts, LastError: row.LastError, NextAt: row.NextAt.Time, MovedAt: row.MovedAt.Time}
	}), nil
}

// Parked lists events that a version of a projection has put aside, in order: those behind a position, that of
// the last one of the page before or 0. The limit is 1 to 1000; another is bus.ErrInvalidOption.
func (a *Admin) Parked(ctx context.Context, db bun.IDB, name string, version int, after int64, limit int) ([]Parked, error) {
	st, db, err := a.of(db)
	if err = errors.Join(err, limits.CheckKey("name", name)); err == nil && (limit < 1 || limit > 1000) {
		err = fmt.Errorf("%d events: %w: 1 to 1000 are allowed", limit, bus.ErrInvalidOption)
	}
	if err != nil {
		return nil, dberr.Wrap(err, "projection: parked events of %q", name)
	}
	rows, err := st.ParkedEvents(ctx, db, name, version, after, limit)
	if err != nil {
		return nil, dberr.Wrap(err, "projection: parked events of %q", name)
	}
	return store.Each(rows, newParked), nil
}

// Resume is [Runner.Resume].
func (a *Admin) Resume(ctx context.Context, db bun.IDB, name string, version int) (int, error) {
	st, db, err := a.of(db)
	if err != nil {
		return 0, dberr.Wrap(err, "projection: resume %q", name)
	}
	return resume(ctx, st, db, name, version)
}

func (a *Admin) of(db bun.IDB) (*store.Store, bun.IDB, error) {
	st, db, err := a.stores.Of(db, errors.New("the admin was not made by NewAdmin"))
	if err == nil {
		err = st.Events()
	}
	return st, db, err
}
