package projection

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Rebuild restarts the newest version of a projection in place. In one transaction, Reset empties
// its tables and its checkpoint goes back to the start. Rebuild waits for batches in progress, but
// not until the events are applied again: [Runner.Run], here or in another process, does that.
// Events up to the old checkpoint are replays, except parked ones: these are retried, and are not
// replays until they have been applied. Without Reset it returns an error. For an unknown name the
// error is [ErrUnknown]. Readers see the tables while they fill: to avoid this, raise the Version
// and [Runner.Promote] it.
func (r *Runner) Rebuild(ctx context.Context, name string) error {
	reader := r.byName[name]
	if reader == nil {
		return fmt.Errorf("projection: rebuild %q: %w", name, r.unknown())
	}
	if reader.Reset == nil {
		return fmt.Errorf("projection: rebuild %q: Reset is nil: set Projection.Reset, or raise the Version", name)
	}
	if err := r.enter(ctx, reader); err != nil {
		return fmt.Errorf("projection: rebuild: %w", err)
	}
	err := txn.InTx(ctx, r.db, func(tx bun.Tx) error {
		if _, err := r.store.Readers.LockAll(ctx, tx, name, reader.Version); err != nil {
			return err
		}
		if err := r.store.Readers.Rewind(ctx, tx, name, reader.Version); err != nil {
			return err
		}
		return resetIn(ctx, r.store, r.db, tx, reader.Projection) // last: it may change search_path
	})
	return dberr.Wrap(err, "projection: rebuild %q", name)
}

// LagError is returned by [Runner.Promote] for a version that is too far behind.
type LagError struct {
	Name         string
	Version      int
	Lag, Allowed int64
}

// Error implements error.
func (e *LagError) Error() string {
	return fmt.Sprintf("projection: promote %q: version %d is %d positions behind, %d are allowed", e.Name, e.Version, e.Lag, e.Allowed)
}

// Promote makes a version of a projection the one to read (see [Runner.Active]) and retires
// earlier versions, which are not applied any more. It is the last step of a rebuild beside the
// old version. If the version is more than maxLag positions behind, the error is a *[LagError]; if
// it has never run, [ErrUnknown]. A retired version cannot be promoted again. Promote waits for
// batches in progress.
func (r *Runner) Promote(ctx context.Context, name string, version int, maxLag int64) error {
	err := limits.CheckKey("name", name)
	if err == nil {
		_, err = r.log.AssignPositions(ctx, r.db)
	}
	if err != nil {
		return fmt.Errorf("projection: promote %q: %w", name, err)
	}
	err = txn.InTx(ctx, r.db, func(tx bun.Tx) error {
		rows, err := r.store.Readers.LockAll(ctx, tx, name, 0)
		if err != nil {
			return err
		}
		lag, versions := int64(-1), map[int]bool{}
		for _, row := range rows {
			versions[row.Version] = true
			switch {
			case row.Version != version:
			case row.Status == store.Retired:
				return fmt.Errorf("version %d is retired and no longer applied: to go back, add a higher version to the runner", version)
			default:
				lag = max(lag, row.Head-row.Position)
			}
		}
		switch {
		case lag < 0:
			return fmt.Errorf("version %d has never run, only versions %v have: %w", version, slices.Sorted(maps.Keys(versions)), ErrUnknown)
		case lag > maxLag:
			return &LagError{Name: name, Version: version, Lag: lag, Allowed: maxLag}
		}
		return r.store.Readers.Activate(ctx, tx, name, version)
	})
	if _, late := errors.AsType[*LagError](err); late || err == nil {
		return err
	}
	return fmt.Errorf("projection: promote %q: %w", name, dberr.Explained(err))
}

// Active returns the last promoted version of a projection, whose tables are the ones to read. It
// is 1 if none was promoted.
func (r *Runner) Active(ctx context.Context, db bun.IDB, name string) (int, error) {
	db, err := txn.Handle(db)
	if err = errors.Join(err, limits.CheckKey("name", name)); err != nil {
		return 0, fmt.Errorf("projection: active version of %q: %w", name, err)
	}
	version, ok, err := r.store.Readers.Active(ctx, db, name)
	if err != nil {
		return 0, fmt.Errorf("projection: active version of %q: %w", name, dberr.Explained(err))
	}
	if !ok {
		return 1, nil
	}
	return version, nil
}

// Resume restarts the halted shards of a version with their attempts reset to 0, and returns their
// number. For a version that has never run it returns [ErrUnknown].
func (r *Runner) Resume(ctx context.Context, name string, version int) (int, error) {
	return resume(ctx, r.store, r.db, name, version)
}

func resume(ctx context.Context, s *store.Store, db bun.IDB, name string, version int) (int, error) {
	n, err := 0, limits.CheckKey("name", name)
	if err == nil {
		n, err = s.Readers.Resume(ctx, db, name, version)
	}
	if err == nil && n == 0 {
		err = known(ctx, s, db, name, version)
	}
	return n, dberr.Wrap(err, "projection: resume %q", name)
}

// known returns an error for a version that has no checkpoints.
func known(ctx context.Context, s *store.Store, db bun.IDB, name string, version int) error {
	rows, err := s.Readers.List(ctx, db, name)
	if err == nil && !slices.ContainsFunc(rows, func(row store.Subscription) bool { return row.Version == version }) {
		err = fmt.Errorf("version %d has never run: %w", version, ErrUnknown)
	}
	return err
}
