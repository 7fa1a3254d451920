package relay

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	// leaseGrace is how much longer a lease is than a batch may take.
	leaseGrace = 20 * time.Second
	// elsewhere is how long to wait while another process has the shard.
	elsewhere = time.Second
)

// shard is a part of a log forwarder. One goroutine at a time works on it.
type shard struct {
	*services
	*logForwarder
	number int
	busy   atomic.Bool

	sub    store.Subscription // as last leased or moved
	reads  []string           // types that are published, here or in other processes
	leased time.Time          // when it was last leased
	known  bool               // the broker's position is known, and no other process has moved it since
	limit  int                // of the next batch; lower after a failure
	window int64              // positions to read; higher if few events match

	failures  int          // of the broker, in a row
	overtaken int          // in a row
	until     atomic.Int64 // when it is retried, in Unix nanoseconds
	gated     atomic.Bool  // wait until then, or until the circuit closes
	abandoned atomic.Int32 // abandoned broker calls that still run
}

// lease is the lease of a shard: longer than a batch takes.
func (l *logForwarder) lease() time.Duration { return 2*l.config.PublishTimeout + leaseGrace }

// step publishes a batch of a shard and reports whether there may be more.
func (s *shard) step(ctx context.Context) (more bool, err error) {
	if held, err := s.hold(ctx); err != nil || !held {
		return false, err
	}
	if !s.known {
		if err := s.locate(ctx); err != nil {
			return s.afterFailure(ctx, nil, err)
		}
	}
	b, err := s.next(ctx)
	if b.smaller > 0 {
		s.limit = b.smaller
		return true, nil
	}
	if err != nil || b.to == s.sub.Position && b.failed == nil {
		return false, err
	}
	revision := s.sub.Mark
	if len(b.records) > 0 {
		n, newest, err := s.put(ctx, b)
		if err == nil {
			s.answered()
		}
		if n > 0 && n < len(b.records) { // those before the first failure are published
			if _, moved := s.move(ctx, b.events[n-1].Position, newest); moved != nil {
				return false, moved
			}
		}
		if err != nil {
			return s.afterFailure(ctx, b.events[n:], err)
		}
		if n < len(b.records) { // there was no time for the rest
			return true, nil
		}
		revision = newest
	}
	if b.to > s.sub.Position {
		if moved, err := s.move(ctx, b.to, revision); err != nil || !moved {
			return false, err
		}
	}
	if b.failed != nil {
		return s.afterFailure(ctx, []store.Event{*b.failed}, b.err)
	}
	s.limit = min(2*s.limit, s.logConfig.BatchSize)
	return s.sub.Position < s.sub.Head, nil
}

// hold leases the shard. False means that another process has it. While there is more to read and
// half of the lease is left, it skips the query.
func (s *shard) hold(ctx context.Context) (bool, error) {
	now := time.Now()
	if s.known && s.sub.Position < s.sub.Head && now.Sub(s.leased) < s.lease()/2 {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	wanted := store.Subscription{Name: s.checkpoint(), Version: logVersion, Shard: s.number}
	sub, ok, err := s.store.Readers.Lease(ctx, s.db, wanted, s.owner, s.lease())
	if err != nil {
		s.known = false
		return false, fmt.Errorf("log forwarder %q: %w", s.name, err)
	}
	if !ok {
		s.known, s.failures, s.overtaken = false, 0, 0 // failures before the takeover no longer count
		s.wait(elsewhere, false)
		return false, nil
	}
	if sub.Position != s.sub.Position || sub.Mark != s.sub.Mark {
		s.known = false
	}
	s.sub, s.leased = sub, now
	s.reads = union(typesOf(sub.Filter), s.stored)
	if len(s.reads) > len(typesOf(sub.Filter)) { // Resume removed types that this process has
		return false, s.announce(ctx, s.services)
	}
	return true, nil
}

// locate asks the broker where to continue. The checkpoint counts in three cases: its revision is
// that of the broker's last record, the old records were removed and none is left, or once after a
// rewind. Otherwise the last record's position counts. It is beyond the checkpoint if a process
// died before it moved the checkpoint, and before it if the broker lost records.
func (s *shard) locate(ctx context.Context) error {
	if s.appender == nil {
		s.known = true
		return nil
	}
	last, err := s.last(ctx, s.config.PublishTimeout)
	position, revision := last.position, last.revision
	switch {
	case err != nil:
		return fmt.Errorf("relay: log forwarder %q: look for the last record of shard %d: %w", s.name, s.number, err)
	case revision > math.MaxInt64:
		return fmt.Errorf(
			"relay: log forwarder %q: revision %d of shard %d: up to %d is allowed", s.name, revision, s.number, int64(math.MaxInt64),
		)
	case position > s.sub.Head:
		return bus.Permanent(fmt.Errorf(
			"relay: log forwarder %q: the last record of shard %d has position %d, but the log ends at %d: is this another database, or an "+
				"older backup?",
			s.name, s.number, position, s.sub.Head,
		))
	}
	s.seen()
	// If the shard is empty, its old records were removed, or the broker lost everything.
	removed := position == 0 && s.sub.Mark <= int64(revision)
	if position == 0 {
		revision = 0
	}
	if removed || s.sub.Mark == int64(revision) || s.sub.Mark == store.Rewound {
		position = s.sub.Position
	}
	if position != s.sub.Position {
		if moved, err := s.move(ctx, position, int64(revision)); err != nil || !moved {
			return err
		}
	}
	s.sub.Mark, s.known = int64(revision), true
	return nil
}

// move moves the checkpoint and reports whether this process still has the shard.
func (s *shard) move(ctx context.Context, to, revision int64) (bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	before := s.sub
	moved, err := s.store.Readers.MoveLeased(ctx, s.db, before, s.owner, to, revision)
	if err != nil || !moved {
		s.known = false
		return false, err
	}
	s.sub.Position, s.sub.Mark, s.sub.Attempts = to, revision, 0
	return true, nil
}
