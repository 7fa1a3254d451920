package projection

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// afterFailure decides how a shard continues after a rollback. An event fails for good only as the
// first of a batch. Otherwise the events before it are applied first, in a smaller batch.
//
// A conflict or a lost connection is not a failure of the event, unless it repeats too often. Then
// the event, or its function, is the cause, and it counts.
func (s *shard) afterFailure(ctx context.Context, f *failure) (more bool, err error) {
	if n := s.blameless.Load(); f.blameless && n < blamelessRuns {
		s.blameless.Store(n + 1)
		return false, s.writeFailure(ctx, f, store.Failure{Status: store.Running, Attempts: f.sub.Attempts,
			Delay: min(conflictDelay<<n, maxDelay), Error: f.Error()})
	}
	f.blameless = false
	s.blameless.Store(0)
	if f.smaller > 0 {
		s.limit.Store(int64(f.smaller))
		return true, nil
	}
	v := bus.OutcomeOf(f.err)
	if cause := context.Cause(ctx); cause == bus.ErrStopping || v.Outcome == bus.Released {
		return false, f // it was interrupted
	}
	failed := store.Failure{Status: store.Running, Attempts: f.sub.Attempts, Delay: s.AttemptDelay, Error: f.Error()}
	switch v.Outcome {
	case bus.Poisoned:
		return s.poisoned(ctx, f, v)
	case bus.Discarded: // its writes were rolled back, which is harmless
		return true, s.passOver(ctx, f, nil)
	case bus.Retried:
		failed.Attempts, failed.Delay = failed.Attempts+1, v.Delay
	case bus.Condemned: // no layer applied the outcome
		failed.Attempts++
	case bus.Snoozed:
		failed.Delay = v.Delay
	}
	return false, s.writeFailure(ctx, f, failed)
}

func (s *shard) writeFailure(ctx context.Context, f *failure, failed store.Failure) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	if err := s.runner.store.Readers.Fail(ctx, s.runner.db, f.sub, failed); err != nil {
		return fmt.Errorf("store a failure: %w", err)
	}
	return f
}

// poisoned applies the projection's OnError to an event.
func (s *shard) poisoned(ctx context.Context, f *failure, v bus.OutcomeError) (more bool, err error) {
	event, reason := f.message.Event, fmt.Sprintf("%s: %s", v.Reason, f.Error())
	if s.OnError == Halt {
		s.runner.config.Logger.ErrorContext(ctx, "projection halted", "projection", s.Name, "version", s.Version, "shard", s.number,
			"stream", event.Stream, "event_version", event.Version, "position", event.Position, "error", reason)
		return false, s.writeFailure(ctx, f, store.Failure{Status: store.Halted, Attempts: f.sub.Attempts + 1, Error: reason})
	}
	s.runner.config.Logger.ErrorContext(ctx, "event parked", "projection", s.Name, "version", s.Version, "shard", s.number,
		"stream", event.Stream, "event_version", event.Version, "position", event.Position, "error", reason)
	p := store.Parked{Name: s.Name, Version: s.Version, Position: event.Position, Stream: event.Stream, Reason: reason, Replay: event.Replay}
	if err := s.passOver(ctx, f, &p); err != nil {
		return false, fmt.Errorf("park an event: %w", err)
	}
	return true, nil
}

// passOver moves a shard past the failed event, and parks the event if park is not nil.
func (s *shard) passOver(ctx context.Context, f *failure, park *store.Parked) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	position := f.message.Event.Position
	return txn.InTx(ctx, s.runner.db, func(tx bun.Tx) error {
		sub, ok, err := s.runner.store.Readers.Lock(ctx, tx, s.Name, s.Version, s.number, statementTimeout)
		if err != nil || !ok || sub.Position != f.sub.Position {
			return err // another process continued
		}
		if park != nil {
			if err := s.runner.store.Readers.Park(ctx, tx, *park); err != nil {
				return err
			}
		}
		if err := s.settle(ctx, tx, sub, []*bus.Message{f.message}, f.parked, position); err != nil { // the checkpoint passes them too
			return err
		}
		_, err = s.runner.store.Readers.Move(ctx, tx, sub, position)
		return err
	})
}

// settle parks events of already parked streams, and deletes the records of events that an earlier run or
// version has parked, up to a position.
func (s *shard) settle(
	ctx context.Context, tx bun.Tx, sub store.Subscription, messages []*bus.Message, parked []store.Event, upTo int64,
) error {
	var again []int64
	for _, m := range messages {
		if e := m.Event; e.Position <= min(sub.ReplayUntil, upTo) && !e.Replay {
			again = append(again, e.Position)
		}
	}
	if err := s.runner.store.Readers.Applied(ctx, tx, s.Name, s.Version, again); err != nil {
		return err
	}
	return s.parkRest(ctx, tx, parked, upTo)
}

// parkRest parks events of already parked streams, up to a position.
func (s *shard) parkRest(ctx context.Context, tx bun.Tx, rows []store.Event, upTo int64) error {
	for _, row := range rows {
		if row.Position > upTo {
			break
		}
		p := store.Parked{Name: s.Name, Version: s.Version, Position: row.Position, Stream: row.Stream, Replay: row.Replay,
			Reason: "its stream is parked"}
		if err := s.runner.store.Readers.Park(ctx, tx, p); err != nil {
			return err
		}
	}
	return nil
}
