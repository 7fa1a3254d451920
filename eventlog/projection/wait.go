package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// ErrHalted is returned by [Runner.WaitFor] and [Runner.CatchUp] for a projection with a halted
// shard: see [Runner.Resume].
var ErrHalted = errors.New("projection: a shard is halted")

// ErrRetired is returned by [Runner.WaitFor] if the runner has only a version that a later one has
// replaced.
var ErrRetired = errors.New("projection: the version is retired")

// ErrUnknown is returned for a projection that the runner does not have, and for a version that
// has never run.
var ErrUnknown = errors.New("projection: the projection is not known")

const (
	waitMin = 5 * time.Millisecond // between polls for progress in other processes
	waitMax = 100 * time.Millisecond
)

// WaitFor returns once a projection has applied or parked what was appended: use it to read your
// own writes. It waits for the version to read (see [Runner.Active]), or the newest if the runner
// does not have that one. Call it after the append has committed. Set a deadline: WaitFor blocks
// until the projection has reached the event, in any process, and forever if the append was rolled
// back. It returns [ErrHalted] when a shard halts, [ErrRetired] if the runner has only a retired
// version, and [ErrUnknown] for an unknown name.
func (r *Runner) WaitFor(ctx context.Context, name string, appended eventlog.Appended) error {
	return dberr.Wrap(r.waitFor(ctx, name, appended), "projection: wait for %q", name)
}

func (r *Runner) waitFor(ctx context.Context, name string, appended eventlog.Appended) error {
	if r.byName[name] == nil {
		return r.unknown()
	}
	if appended.Sequence == 0 { // nothing was appended
		return nil
	}
	for wait := waitMin; ; wait = min(2*wait, waitMax) {
		moved := r.moves.coming()
		reader, err := r.toRead(ctx, name) // another one once it is promoted
		var place int64
		var ok bool
		if err == nil {
			place, ok, err = r.store.EventLog.Place(ctx, r.db, appended.Sequence)
		}
		if err == nil && !ok {
			_, err = r.log.AssignPositions(ctx, r.db)
		}
		if err == nil && ok {
			var done bool
			if done, err = r.reached(ctx, reader, place); done {
				return nil
			}
			if errors.Is(err, ErrRetired) {
				if next, failed := r.toRead(ctx, name); failed == nil && next != reader {
					continue // it was just promoted
				}
			}
		}
		if err != nil && ctx.Err() == nil {
			return dberr.Explained(err)
		}
		if err := await(ctx, moved, wait); err != nil {
			return fmt.Errorf("%w: the projection has not reached sequence %d: does a runner run, and is the append committed?",
				err, appended.Sequence)
		}
	}
}

// toRead returns the version of a projection whose tables should be read.
func (r *Runner) toRead(ctx context.Context, name string) (*reader, error) {
	versions := slices.DeleteFunc(slices.Clone(r.readers), func(reader *reader) bool { return reader.Name != name })
	if len(versions) == 1 {
		return versions[0], nil
	}
	active, err := r.Active(ctx, r.db, name)
	for _, reader := range versions {
		if reader.Version == active {
			return reader, err
		}
	}
	return r.byName[name], err
}

// unknown returns ErrUnknown with the runner's projections.
func (r *Runner) unknown() error {
	return fmt.Errorf("%w: the runner was given %q", ErrUnknown, slices.Sorted(maps.Keys(r.byName)))
}

// reached reports whether all shards have reached a position.
func (r *Runner) reached(ctx context.Context, reader *reader, place int64) (bool, error) {
	rows, err := r.subscriptions(ctx, r.db, reader)
	if err != nil {
		return false, err
	}
	done := len(rows) > 0
	for _, row := range rows {
		if row.Position >= place {
			continue
		}
		switch done = false; row.Status {
		case store.Retired:
			return false, ErrRetired
		case store.Halted:
			return false, fmt.Errorf("%w: shard %d at position %d: %s", ErrHalted, row.Shard, row.Position, row.LastError)
		}
	}
	return done, nil
}

// CatchUp applies events as [Runner.Run] does, until every projection has reached the end of the
// log as of the call. It returns the number of events applied. It is for tests, and for commands
// that rebuild and exit. It returns the first error that stops a projection instead of retrying.
// If other processes run the projections too, it waits for their batches.
func (r *Runner) CatchUp(ctx context.Context) (n int, err error) {
	before := r.applied()
	err = r.catchUp(ctx)
	if n = r.applied() - before; err != nil {
		return n, fmt.Errorf("projection: catch up: %w", err)
	}
	return n, nil
}

// applied is how many events were applied since the runner was made.
func (r *Runner) applied() (n int) {
	for _, reader := range r.readers {
		for _, shard := range reader.shards {
			n += int(shard.applied.Load())
		}
	}
	return n
}

func (r *Runner) catchUp(ctx context.Context) error {
	if err := r.start(ctx); err != nil {
		return err
	}
	if _, err := r.log.AssignPositions(ctx, r.db); err != nil {
		return err
	}
	head, err := r.store.EventLog.Head(ctx, r.db)
	if err != nil {
		return err
	}
	for _, reader := range r.readers {
		for {
			moved := r.moves.coming()
			for _, shard := range reader.shards {
				for more := true; more && ctx.Err() == nil; {
					more, err = shard.step(ctx, ctx.Done())
					f, failed := errors.AsType[*failure](err)
					switch {
					case failed && !f.blameless:
						return f.named(shard)
					case err != nil && !failed:
						return err
					}
				}
			}
			done, err := r.reached(ctx, reader, head)
			if done || errors.Is(err, ErrRetired) {
				break
			}
			if err != nil {
				return err
			}
			if err := await(ctx, moved, waitMin); err != nil {
				return err
			}
		}
	}
	return nil
}

// Stats is the progress of a projection, in the whole database.
type Stats struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
	// Lag is how many positions the slowest shard is behind the log.
	Lag int64 `json:"lag"`
	// Halted is the number of halted shards.
	Halted int `json:"halted"`
	// Parked is the number of parked events, up to 10,000.
	Parked int `json:"parked"`
}

// Stats returns the progress of the projections, by name and version.
func (r *Runner) Stats(ctx context.Context) ([]Stats, error) {
	var stats []Stats
	for _, reader := range r.readers {
		rows, err := r.subscriptions(ctx, r.db, reader)
		if err != nil {
			return nil, fmt.Errorf("projection: stats: %w", err)
		}
		s := Stats{Name: reader.Name, Version: reader.Version}
		for _, row := range rows {
			if row.Status == store.Retired {
				continue
			}
			s.Lag = max(s.Lag, row.Head-row.Position)
			if row.Status == store.Halted {
				s.Halted++
			}
		}
		if s.Parked, err = r.store.Readers.CountParked(ctx, r.db, reader.Name, reader.Version, store.MostCounted); err != nil {
			return nil, fmt.Errorf("projection: stats: %w", dberr.Explained(err))
		}
		stats = append(stats, s)
	}
	slices.SortFunc(stats, func(a, b Stats) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	return stats, nil
}
