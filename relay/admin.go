package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// ErrUnknownForwarder is returned for a log forwarder that the runner does not have.
var ErrUnknownForwarder = errors.New("relay: the log forwarder is not known")

// Stats is the progress of a log forwarder in the whole database. OpenedAt and Reason describe this
// process.
type Stats struct {
	Forwarder string
	// Lag is how many positions the slowest shard is behind the log.
	Lag int64
	// Halted is the number of halted shards. LastError is the error of the first shard that is
	// halted or retries.
	Halted    int
	LastError string
	// Parked is the number of parked events, up to 10,000.
	Parked int
	// OpenedAt is when the circuit in this process opened, and Reason is why. Both are zero while it
	// is closed.
	OpenedAt time.Time
	Reason   error
}

// Stats returns the progress of the log forwarders, in the order in which they were given.
func (r *Runner) Stats(ctx context.Context) ([]Stats, error) {
	all := make([]Stats, 0, len(r.forwarders))
	for _, l := range r.forwarders {
		rows, err := r.store.Readers.List(ctx, r.db, l.checkpoint())
		s := Stats{Forwarder: l.name}
		for _, row := range rows {
			s.Lag = max(s.Lag, row.Head-row.Position)
			if row.Status == store.Halted {
				s.Halted++
			}
			if s.LastError == "" {
				s.LastError = row.LastError
			}
		}
		if err == nil && len(rows) == 0 { // never run
			s.Lag, err = r.store.EventLog.Head(ctx, r.db)
		}
		if err == nil {
			s.Parked, err = r.store.Readers.CountParked(ctx, r.db, l.checkpoint(), logVersion, store.MostCounted)
		}
		if err != nil {
			return nil, dberr.Wrap(err, "relay: stats")
		}
		if since, reason, open := l.config.Circuit.Tripped(); open {
			s.OpenedAt, s.Reason = since, reason
		}
		all = append(all, s)
	}
	return all, nil
}

// Parked is an event that a log forwarder has parked: see [LogConfig].
type Parked struct {
	Position int64
	Stream   string
	Reason   string
	ParkedAt time.Time
}

// Parked lists up to limit parked events of a log forwarder, in order. Only [Runner.Rewind]
// publishes them: a later publish would break the order. limit is 1 or more. For an unknown name
// the error is [ErrUnknownForwarder].
func (r *Runner) Parked(ctx context.Context, name string, limit int) ([]Parked, error) {
	err := r.known(name)
	var rows []store.Parked
	if err == nil {
		rows, err = r.store.Readers.Parked(ctx, r.db, logPrefix+name, logVersion, 0, limit)
	}
	if err != nil {
		return nil, dberr.Wrap(err, "relay: parked events of %q", name)
	}
	return store.Each(rows, func(row store.Parked) Parked {
		return Parked{Position: row.Position, Stream: row.Stream, Reason: row.Reason, ParkedAt: row.ParkedAt.Time}
	}), nil
}

// Resume restarts the halted shards of a log forwarder with their attempts reset to 0, and returns
// their number. It also removes the stored event types that this process lacks: see
// [NewLogForwarder]. A process that has them adds them again. For an unknown name the error is
// [ErrUnknownForwarder].
func (r *Runner) Resume(ctx context.Context, name string) (n int, err error) {
	if err = r.known(name); err == nil {
		n, err = r.store.Readers.Resume(ctx, r.db, logPrefix+name, logVersion)
	}
	for _, l := range r.forwarders {
		if l.name == name && err == nil {
			err = l.setTypes(ctx, &r.services, func([]string) []string { return l.stored })
		}
	}
	return n, dberr.Wrap(err, "relay: resume %q", name)
}

// Rewind makes the forwarder start again from the beginning of the log; Run publishes the records
// again, after those that the broker already has. It does not wait for a batch in progress, which
// may still be published. Receivers that still have the records in their inbox skip them: see
// inbox.DeduplicationWindow. Parked events are retried. For an unknown name the error is
// [ErrUnknownForwarder].
func (r *Runner) Rewind(ctx context.Context, name string) error {
	err := r.known(name)
	if err == nil {
		err = txn.InTx(ctx, r.db, func(tx bun.Tx) error {
			if _, err := r.store.Readers.LockAll(ctx, tx, logPrefix+name, logVersion); err != nil {
				return err
			}
			if err := r.store.Readers.DropParked(ctx, tx, logPrefix+name, logVersion); err != nil {
				return err
			}
			return r.store.Readers.Rewind(ctx, tx, logPrefix+name, logVersion)
		})
	}
	return dberr.Wrap(err, "relay: rewind %q", name)
}

// known returns an error if the runner does not have the log forwarder.
func (r *Runner) known(name string) error {
	if slices.ContainsFunc(r.forwarders, func(l *logForwarder) bool { return l.name == name }) {
		return nil
	}
	names := store.Each(r.forwarders, func(l *logForwarder) string { return l.name })
	return fmt.Errorf("%w: the runner was given %q", ErrUnknownForwarder, names)
}
