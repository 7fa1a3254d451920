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

// ErrUnknownRelay is returned for a log relay that the runner was not given.
var ErrUnknownRelay = errors.New("relay: the log relay is not known")

// LogStats is how far a log relay has come, in the whole database.
type LogStats struct {
	Relay string
	// Lag is how many positions of the log are still before its slowest shard.
	Lag int64
	// Halted is the number of shards that wait for a person, and LastError what the first of
	// them, or of those that try again, has failed with.
	Halted    int
	LastError string
	// Parked is the number of events put aside, up to 10,000.
	Parked int
	// Closed is since when the circuit is open, and Reason why. It is zero while the circuit is
	// closed.
	Closed time.Time
	Reason error
}

// Logs returns how the log relays are doing, in the order in which they were given.
func (r *Runner) Logs(ctx context.Context) ([]LogStats, error) {
	all := make([]LogStats, 0, len(r.logs))
	for _, l := range r.logs {
		rows, err := r.store.Subscriptions(ctx, r.db, l.checkpoint())
		s := LogStats{Relay: l.name}
		for _, row := range rows {
			s.Lag = max(s.Lag, row.Head-row.Position)
			if row.Status == store.Halted {
				s.Halted++
			}
			if s.LastError == "" {
				s.LastError = row.LastError
			}
		}
		if err == nil && len(rows) == 0 { // it has never run
			s.Lag, err = r.store.Head(ctx, r.db)
		}
		if err == nil {
			s.Parked, err = r.store.CountParked(ctx, r.db, l.checkpoint(), logVersion, store.MostCounted)
		}
		if err != nil {
			return nil, dberr.Wrap(err, "relay: stats of log relays")
		}
		if since, reason, open := l.circuit.Tripped(); open {
			s.Closed, s.Reason = since, reason
		}
		all = append(all, s)
	}
	return all, nil
}

// Parked is an event that a log relay has put aside: see [Park].
type Parked struct {
	Position int64
	Stream   string
	Reason   string
	ParkedAt time.Time
}

// Parked lists the events, at most limit, that a log relay has put aside, in order. They are
// published when it is rewound, and not before: behind what has left since they would be out of
// order.
func (r *Runner) Parked(ctx context.Context, name string, limit int) ([]Parked, error) {
	err := r.known(name)
	var rows []store.Parked
	if err == nil {
		rows, err = r.store.ParkedEvents(ctx, r.db, logPrefix+name, logVersion, 0, limit)
	}
	if err != nil {
		return nil, dberr.Wrap(err, "relay: parked events of %q", name)
	}
	return store.Each(rows, func(row store.Parked) Parked {
		return Parked{Position: row.Position, Stream: row.Stream, Reason: row.Reason, ParkedAt: row.ParkedAt.Time}
	}), nil
}

// Resume has the halted shards of a log relay try again, with all their attempts, and returns how
// many there were. Events of types that this process lacks, and no other has, are left out from now on: see [NewLogForwarder].
func (r *Runner) Resume(ctx context.Context, name string) (n int, err error) {
	if err = r.known(name); err == nil {
		n, err = r.store.ResumeReader(ctx, r.db, logPrefix+name, logVersion)
	}
	for _, l := range r.logs {
		if l.name == name && err == nil {
			err = r.setTypes(ctx, l, func([]string) []string { return l.stored })
		}
	}
	return n, dberr.Wrap(err, "relay: resume %q", name)
}

// Rewind has a log relay publish everything again, from the beginning of the log, behind what the
// broker has. Receivers that remember the records drop them: see [DeduplicationWindow]. Events put aside are
// forgotten, and tried again.
func (r *Runner) Rewind(ctx context.Context, name string) error {
	err := r.known(name)
	if err == nil {
		err = txn.InTx(ctx, r.db, func(tx bun.Tx) error {
			if _, err := r.store.LockReader(ctx, tx, logPrefix+name, logVersion); err != nil {
				return err
			}
			return r.store.Rewind(ctx, tx, logPrefix+name, logVersion)
		})
	}
	return dberr.Wrap(err, "relay: rewind %q", name)
}

// known reports a log relay that the runner was not given.
func (r *Runner) known(name string) error {
	if slices.ContainsFunc(r.logs, func(l *logging) bool { return l.name == name }) {
		return nil
	}
	names := make([]string, len(r.logs))
	for i, l := range r.logs {
		names[i] = l.name
	}
	return fmt.Errorf("%w: the runner was given %q", ErrUnknownRelay, names)
}
