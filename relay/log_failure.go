package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

const (
	// mostOvertaken is how many sequence conflicts in a row a shard may have before it waits.
	mostOvertaken = 3
	// longestDelay is the longest wait after a failed attempt, unless AttemptDelay is longer.
	longestDelay = time.Minute
)

// afterFailure decides how a shard continues after a failure: of the first of these events, or of
// any of them. Without events, the broker's position could not be read.
func (s *shard) afterFailure(ctx context.Context, events []store.Event, err error) (more bool, _ error) {
	s.known = false // some records may be published
	var permanent bool
	_, own := errors.AsType[eventError](err)
	switch {
	case own:
		hung := errors.Is(err, isolate.ErrTimeout) && s.sub.Attempts+1 >= mostHangs
		permanent = hung || errors.Is(err, broker.ErrRejected) || bus.OutcomeOf(err).Outcome == bus.Condemned
	case errors.Is(err, broker.ErrSequenceConflict):
		s.overtaken++
		if s.overtaken > mostOvertaken {
			s.wait(firstRetry, false)
		}
		return s.overtaken <= mostOvertaken, nil
	case errors.Is(err, errNewer):
		return false, s.leave(ctx, events[0], err)
	case errors.Is(err, broker.ErrNoDestination):
		s.away(err)
		s.wait(s.missingFor(), false)
		return false, nil
	case errors.Is(err, broker.ErrUnavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		_ = s.config.Circuit.Trip(err)
		s.away(err)
		if s.appender == nil { // an appender is asked for its position instead
			s.limit = 1
		}
		s.wait(min(firstRetry<<min(s.failures-1, 5), longestRetry), true)
		return false, nil
	case errors.Is(err, broker.ErrRejected), bus.OutcomeOf(err).Outcome == bus.Condemned:
		permanent = true
	}
	if len(events) > 1 && s.appender != nil { // it may be any of them
		s.limit = max(len(events)/2, 1)
		return true, nil
	}
	if s.sub.Attempts+1 < s.logConfig.MaxAttempts && !permanent {
		delay := max(min(s.logConfig.AttemptDelay<<min(s.sub.Attempts, 16), longestDelay), s.logConfig.AttemptDelay)
		_, err := s.writeFailure(ctx, store.Failure{Status: store.Running, Attempts: s.sub.Attempts + 1, Delay: delay, Error: errorlog.Text(err)})
		return false, err
	}
	return s.giveUp(ctx, events, err)
}

// away counts broker failures in a row and logs the first.
func (s *shard) away(err error) {
	s.failures++
	if s.failures == 1 {
		s.logger.Warn("log forwarder waits for the broker", "forwarder", s.name, "shard", s.number, "error", errorlog.Text(err))
	}
}

// wait pauses the shard for a while, or until its circuit closes. Nothing is written.
func (s *shard) wait(d time.Duration, gated bool) {
	s.gated.Store(gated)
	s.until.Store(time.Now().Add(d).UnixNano())
}

// missingFor is how long to wait for a missing destination.
func (s *shard) missingFor() time.Duration {
	return min(leastMissing<<min(s.failures-1, 9), mostMissing)
}

// waits returns until when the shard is paused, and whether it still is.
func (s *shard) waits(now time.Time) (until time.Time, waits bool) {
	until = time.Unix(0, s.until.Load())
	_, _, open := s.config.Circuit.Tripped()
	if s.gated.Load() && !open { // the broker answered meanwhile
		return time.Time{}, false
	}
	return until, until.After(now)
}

// seen records that the broker answered. It resets the circuit only if this shard waited or no
// other does: other shards may have another destination.
func (s *shard) seen() {
	waited := s.gated.Swap(false)
	others := slices.ContainsFunc(s.shards, func(other *shard) bool { return other.gated.Load() })
	if _, _, open := s.config.Circuit.Tripped(); open && (waited || !others) {
		s.config.Circuit.Reset()
	}
}

// answered records that a batch was published.
func (s *shard) answered() {
	s.failures, s.overtaken = 0, 0
	s.seen()
}

// writeFailure stores a failure and reports whether this process still has the shard. After the
// lease is lost, a failure does not count, because another process continues.
func (s *shard) writeFailure(ctx context.Context, f store.Failure) (written bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	if written, err = s.store.Readers.FailLeased(ctx, s.db, s.sub, s.owner, f); err != nil {
		return false, fmt.Errorf("store a failure: %w", err)
	}
	return written, nil
}

// giveUp halts the shard or parks the event.
func (s *shard) giveUp(ctx context.Context, events []store.Event, err error) (more bool, _ error) {
	attributes := []any{"forwarder", s.name, "shard", s.number, "position", s.sub.Position, "error", errorlog.Text(err)}
	if len(events) > 0 {
		attributes = append(
			attributes, "event_type", events[0].Type, "stream", events[0].Stream, "event_version", events[0].Version, "event_position",
			events[0].Position,
		)
	}
	if !s.logConfig.ParkFailures || len(events) == 0 {
		halted, err := s.writeFailure(ctx, store.Failure{Status: store.Halted, Attempts: s.sub.Attempts + 1, Error: errorlog.Text(err)})
		if halted {
			s.logger.ErrorContext(ctx, "log forwarder halted", attributes...)
		}
		return false, err
	}
	s.logger.ErrorContext(ctx, "event parked", attributes...)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	event, before, reason := events[0], s.sub, errorlog.Text(err)
	err = txn.InTx(ctx, s.db, func(tx bun.Tx) error {
		moved, err := s.store.Readers.MoveLeased(ctx, tx, before, s.owner, event.Position, before.Mark)
		if err != nil || !moved {
			return err
		}
		return s.store.Readers.Park(
			ctx, tx,
			store.Parked{Name: s.checkpoint(), Version: logVersion, Position: event.Position, Stream: event.Stream, Reason: reason},
		)
	})
	return err == nil, dberr.Wrap(err, "park an event")
}

// leave leaves a shard to a process that can publish its next event.
func (s *shard) leave(ctx context.Context, event store.Event, err error) error {
	s.known = false
	err = fmt.Errorf("relay: event %q at position %d: %w", event.Type, event.Position, err)
	s.failures++
	if s.failures == 1 {
		s.logger.Warn("log forwarder leaves a shard to other processes", "forwarder", s.name, "shard", s.number, "error", errorlog.Text(err))
	}
	s.wait(min(firstRetry<<min(s.failures-1, 5), longestRetry), false)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	if err := s.store.Readers.LeaveLeased(ctx, s.db, s.sub, s.owner, errorlog.Text(err)); err != nil {
		return fmt.Errorf("leave a shard: %w", err)
	}
	return nil
}
