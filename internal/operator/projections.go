package operator

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/internal/projections"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// Projections shows and changes projections and log forwarders. [Session.Projections] returns it;
// it is safe for concurrent use.
type Projections struct{ access *access }

// ProjectionState is the progress of a shard of a projection's version.
type ProjectionState = projections.State

// List lists the shards of all projections and their progress. A principal that may not
// read contents sees no error texts. Without an event log the error is errors.ErrUnsupported.
func (s *Projections) List(ctx context.Context) ([]projections.State, error) {
	found, err := look(ctx, s.access, ops.View, "", s.access.Projections.States)
	for i := range found {
		found[i].LastError = s.text(ctx, found[i].LastError)
	}
	return found, err
}

// Parked lists the parked events of a projection's version: see projections.Admin.Parked. A
// principal that may not read contents sees no reasons.
func (s *Projections) Parked(ctx context.Context, name string, version int, after int64, limit int) ([]projection.Parked, error) {
	found, err := look(ctx, s.access, ops.View, "", func(ctx context.Context, db bun.IDB) ([]projection.Parked, error) {
		return s.access.Projections.Parked(ctx, db, name, version, after, limit)
	})
	for i := range found {
		found[i].Reason = s.text(ctx, found[i].Reason)
	}
	return found, err
}

// Resume resumes the halted shards of a projection's version and returns how many there
// were.
func (s *Projections) Resume(ctx context.Context, reason, name string, version int) (resumed int, err error) {
	change := ops.Change{Action: ops.ResumeProjection, Reason: reason, Target: ops.Target{Projection: name, Version: version}}
	err = s.access.Change(ctx, change, func(ctx context.Context, tx bun.Tx, _ []int64) (int, error) {
		resumed, err = s.access.Projections.Resume(ctx, tx, name, version)
		return 0, err
	})
	return resumed, err
}

// text redacts an error text that belongs to no consumer.
func (s *Projections) text(ctx context.Context, text string) string {
	if text == "" {
		return ""
	}
	return s.access.Text(ctx, ops.Content{}, text)
}
