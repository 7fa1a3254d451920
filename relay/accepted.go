package relay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/cloudevents"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
)

// During a rolling deploy, instances of two releases run one receiver. Each instance stores the
// types that it accepts. An instance that lacks a type of another instance returns its records to
// the broker, because acknowledging them as unknown would lose them.

const (
	// acceptedFor is how long a stored type counts. Instances store their types every forgetEvery,
	// and may restart in between.
	acceptedFor = 3 * time.Minute
	// standBackFor is how long an instance leaves the subscription to other instances.
	standBackFor = 30 * time.Second
)

// newerError reports a record that another instance accepts and this one does not.
type newerError struct{ eventType string }

func (e *newerError) Error() string {
	return fmt.Sprintf("another instance of the receiver accepts type %q, which this one lacks", cloudevents.Short(e.eventType))
}

// keepTypes stores the types that this instance accepts.
func (r *Runner) keepTypes(ctx context.Context, rc *receiving) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if err := r.store.KeepTypes(ctx, r.db, rc.name, slices.Collect(maps.Keys(rc.types)), acceptedFor); err != nil {
		return fmt.Errorf("receiver %q: store its types: %w", rc.name, err)
	}
	return nil
}

// mayDrop returns a newerError if another instance accepts one of the types. It queries before
// each acknowledgement, because an instance that accepts more may just have started.
func (r *Runner) mayDrop(ctx context.Context, rc *receiving, unknown ...string) error {
	if len(unknown) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	kept, err := r.store.KeptTypes(ctx, r.db, rc.name)
	if err != nil {
		r.outage.Failed("look which types are accepted", err)
		rc.runs.failed(err)
		return fmt.Errorf("relay: receiver %q: look which types are accepted: %w", rc.name, err)
	}
	for _, eventType := range kept {
		if slices.Contains(unknown, eventType) {
			return &newerError{eventType}
		}
	}
	return nil
}

// standBack leaves the subscription to newer instances for a while.
func (r *Runner) standBack(ctx context.Context, rc *receiving, reason error) {
	r.config.Logger.Warn("receiver stands back", "receiver", rc.name, "error", errorlog.Text(reason), "next_try_within", standBackFor)
	rc.runs.standBack(reason)
	defer rc.runs.standBack(nil)
	outage.Pause(ctx, standBackFor)
}

// standBack records why other instances receive; nil means that this one does.
func (s *running) standBack(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newer, s.sum.Paused = absence{}, ""
	if reason != nil {
		s.newer, s.sum.Paused = absence{since: time.Now(), reason: reason}, errorlog.Text(reason)
	}
}
