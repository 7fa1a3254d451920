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

// Rebuild has the newest version of a projection begin again, in place: in one
// transaction its tables are emptied by its Reset, and its checkpoint goes back to
// the start. It returns at once; [Runner.Run], here or elsewhere, then applies
// all events, those that were applied before as a replay. Readers see the tables
// fill up meanwhile: where that matters, raise the Version instead and
// [Runner.Promote] it. Events put aside are forgotten, and come again.
func (r *Runner) Rebuild(ctx context.Context, name string) error {
	reader := r.byName[name]
	if reader == nil {
		return fmt.Errorf("projection: rebuild %q: %w", name, r.unknown())
	}
	if reader.Reset == nil {
		return fmt.Errorf("projection: rebuild %q: it has no Reset: give it one, or raise its Version", name)
	}
	if err := r.enter(ctx, reader); err != nil {
		return fmt.Errorf("projection: rebuild: %w", err)
	}
	err := txn.InTx(ctx, r.db, func(tx bun.Tx) error {
		if _, err := r.store.LockReader(ctx, tx, name, reader.Version); err != nil {
			return err
		}
		if err := r.store.Rewind(ctx, tx, name, reader.Version); err != nil {
			return err
		}
		if _, err := r.store.Session(ctx, tx, reader.Timeout+abandonGrace+statementTimeout); err != nil { // Reset may take a while
			return err
		}
		if err := reset(txn.Within(ctx), reader.Reset, tx); err != nil { // last: it may change search_path
			return fmt.Errorf("reset: %w", err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("projection: rebuild %q: %w", name, err)
	}
	return nil
}

// LagError is returned by [Runner.Promote] for a version that is not there yet.
type LagError struct {
	Name         string
	Version      int
	Lag, Allowed int64
}

// Error implements error.
func (e *LagError) Error() string {
	return fmt.Sprintf("projection: promote %q: version %d is %d positions behind, %d are allowed", e.Name, e.Version, e.Lag, e.Allowed)
}

// Promote makes a version of a projection the one to read, see [Runner.Active], and
// retires those before it, which are applied no more: the last step of a rebuild
// beside the old version. A version that is more than maxLag positions behind is a
// *[LagError], one that has never run [ErrUnknown]. There is no way back to a
// version that is retired. It waits for the batches that are being applied.
func (r *Runner) Promote(ctx context.Context, name string, version int, maxLag int64) error {
	err := limits.CheckKey("name", name)
	if err == nil {
		_, err = r.log.AssignPositions(ctx, r.db)
	}
	if err != nil {
		return fmt.Errorf("projection: promote %q: %w", name, err)
	}
	err = txn.InTx(ctx, r.db, func(tx bun.Tx) error {
		rows, err := r.store.LockReader(ctx, tx, name, 0)
		if err != nil {
			return err
		}
		lag, versions := int64(-1), map[int]bool{}
		for _, row := range rows {
			versions[row.Version] = true
			switch {
			case row.Version != version:
			case row.Status == store.Retired:
				return fmt.Errorf("version %d is retired, and is applied no more: to go back, give the runner a higher version", version)
			default:
				lag = max(lag, row.Head-row.Position)
			}
		}
		switch {
		case lag < 0:
			return fmt.Errorf("version %d has never run, %v have: %w", version, slices.Sorted(maps.Keys(versions)), ErrUnknown)
		case lag > maxLag:
			return &LagError{Name: name, Version: version, Lag: lag, Allowed: maxLag}
		}
		return r.store.Activate(ctx, tx, name, version)
	})
	if _, late := errors.AsType[*LagError](err); late || err == nil {
		return err
	}
	return fmt.Errorf("projection: promote %q: %w", name, dberr.Explained(err))
}

// Active returns the version of a projection that was promoted last: the one
// whose tables to read. It is 1 as long as none was.
func (r *Runner) Active(ctx context.Context, db bun.IDB, name string) (int, error) {
	db, err := txn.Handle(db)
	if err = errors.Join(err, limits.CheckKey("name", name)); err != nil {
		return 0, fmt.Errorf("projection: active version of %q: %w", name, err)
	}
	version, ok, err := r.store.Active(ctx, db, name)
	if err != nil {
		return 0, fmt.Errorf("projection: active version of %q: %w", name, dberr.Explained(err))
	}
	if !ok {
		return 1, nil
	}
	return version, nil
}

// Resume has the halted shards of a version try again, with all their attempts,
// and returns how many there were. A version that has never run is [ErrUnknown].
func (r *Runner) Resume(ctx context.Context, name string, version int) (int, error) {
	return resume(ctx, r.store, r.db, name, version)
}

func resume(ctx context.Context, s *store.Store, db bun.IDB, name string, version int) (int, error) {
	n, err := 0, limits.CheckKey("name", name)
	if err == nil {
		n, err = s.ResumeReader(ctx, db, name, version)
	}
	if err == nil && n == 0 {
		err = known(ctx, s, db, name, version)
	}
	return n, dberr.Wrap(err, "projection: resume %q", name)
}

// known returns an error for a version that has no checkpoints.
func known(ctx context.Context, s *store.Store, db bun.IDB, name string, version int) error {
	rows, err := s.Subscriptions(ctx, db, name)
	if err == nil && !slices.ContainsFunc(rows, func(row store.Subscription) bool { return row.Version == version }) {
		err = fmt.Errorf("version %d has never run: %w", version, ErrUnknown)
	}
	return err
}
