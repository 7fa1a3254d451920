package relay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	maxWindow = 50_000  // positions that one batch looks at, at most
	batchSize = 4 << 20 // bytes of bodies that one batch has, but for the last
	// leaseGrace is what a lease has beyond the time that a batch may take.
	leaseGrace = 20 * time.Second
	// elsewhere is how long a shard is left to another process before the next look.
	elsewhere = time.Second
)

// shard is a part of a log relay. One goroutine at a time works on it.
type shard struct {
	*logging
	number int
	busy   atomic.Bool

	sub    store.Subscription // as it was leased, or moved
	told   bool               // the broker has told where the shard stands, and nobody else has moved it since
	limit  int                // of the next batch: fewer after a failure
	window int64              // positions that it looks at: more where few are for it

	failures  int          // of the broker, in a row
	overtaken int          // how often in a row
	until     atomic.Int64 // when it is to be tried again, in nanoseconds
	gated     atomic.Bool  // until then, or until the gate opens
}

// lease is how long a shard is its owner's: longer than a batch takes.
func (l *logging) lease() time.Duration { return 2*l.timeout + leaseGrace }

// outgoingBatch is what a shard publishes at once.
type outgoingBatch struct {
	records []Record
	events  []store.Event // of the records
	to      int64         // the position after it, when all of it is published
	failed  *store.Event  // of which no record could be made, after all of these
	err     error         // why
}

// step publishes a batch of a shard, and tells whether there may be more to do at once.
func (r *Runner) step(ctx context.Context, s *shard) (more bool, err error) {
	if held, err := r.hold(ctx, s); err != nil || !held {
		return false, err
	}
	if !s.told {
		if err := r.catchOn(ctx, s); err != nil {
			return r.afterFailure(ctx, s, nil, err)
		}
	}
	b, err := r.next(ctx, s)
	if err != nil || b.to == s.sub.Position && b.failed == nil {
		return false, err
	}
	mark := s.sub.Mark
	if len(b.records) > 0 {
		n, newest, err := s.put(ctx, b.records)
		if err == nil {
			s.answered()
		}
		if n > 0 && n < len(b.records) { // those before the first that failed are there
			if _, moved := r.move(ctx, s, b.events[n-1].Position, newest); moved != nil {
				return false, moved
			}
		}
		if err != nil {
			return r.afterFailure(ctx, s, b.events[n:], err)
		}
		mark = newest
	}
	if b.to > s.sub.Position {
		if moved, err := r.move(ctx, s, b.to, mark); err != nil || !moved {
			return false, err
		}
	}
	if b.failed != nil {
		return r.afterFailure(ctx, s, []store.Event{*b.failed}, b.err)
	}
	s.limit = min(2*s.limit, s.batch)
	return s.sub.Position < s.sub.Head, nil
}

// hold leases the shard. False means that somebody else has it.
func (r *Runner) hold(ctx context.Context, s *shard) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	wanted := store.Subscription{Name: s.checkpoint(), Version: logVersion, Shard: s.number}
	sub, ok, err := r.store.LeaseSubscription(ctx, r.db, wanted, r.owner, s.lease())
	if err != nil {
		s.told = false
		return false, fmt.Errorf("log relay %q: %w", s.name, err)
	}
	if !ok {
		s.told = false
		s.until.Store(time.Now().Add(elsewhere).UnixNano())
		return false, nil
	}
	if sub.Position != s.sub.Position || sub.Mark != s.sub.Mark {
		s.told = false
	}
	s.sub = sub
	return true, nil
}

// catchOn asks the broker where to go on. What the checkpoint knows of counts as it is; what was
// appended beyond it, before somebody could move it, is there.
func (r *Runner) catchOn(ctx context.Context, s *shard) error {
	if s.appender == nil {
		s.told = true
		return nil
	}
	calling, cancel := context.WithTimeoutCause(ctx, s.timeout, errTimeout)
	defer cancel()
	position, mark, err := s.appender.Last(calling, s.number)
	switch {
	case err != nil:
		return fmt.Errorf("relay: log relay %q: look for the last record of shard %d: %w", s.name, s.number, err)
	case mark > math.MaxInt64:
		return fmt.Errorf("relay: log relay %q: mark %d of shard %d: up to %d is allowed", s.name, mark, s.number, int64(math.MaxInt64))
	case position > s.sub.Head:
		return bus.Permanent(fmt.Errorf("relay: log relay %q: the last record of shard %d is of position %d, and the log ends at %d: is this another database, or an older one?",
			s.name, s.number, position, s.sub.Head))
	}
	s.seen()
	known := s.sub.Mark == int64(mark) || s.sub.Mark == store.Rewound
	if mark == 0 || known {
		position = s.sub.Position
	}
	if position != s.sub.Position {
		if moved, err := r.move(ctx, s, position, int64(mark)); err != nil || !moved {
			return err
		}
	}
	s.sub.Mark, s.told = int64(mark), true
	return nil
}

// move moves the checkpoint, and tells whether the shard is still this process's.
func (r *Runner) move(ctx context.Context, s *shard, to, mark int64) (bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	before := s.sub
	moved, err := r.store.MoveLeased(ctx, r.db, before, r.owner, to, mark)
	if err != nil || !moved {
		s.told = false
		return false, err
	}
	s.sub.Position, s.sub.Mark, s.sub.Attempts = to, mark, 0
	return true, nil
}

// next reads the events that come after the checkpoint.
func (r *Runner) next(ctx context.Context, s *shard) (b outgoingBatch, err error) {
	statement, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	limit := s.limit
	if s.sub.Attempts > 0 {
		limit = 1
	}
	page := store.Page{After: s.sub.Position, UpTo: min(s.sub.Head, s.sub.Position+s.window), Limit: limit, EventFilter: store.EventFilter{Types: s.stored}}
	if s.shardCount > 1 {
		page.SlotFrom, page.SlotTo = s.number*store.Slots/s.shardCount, (s.number+1)*store.Slots/s.shardCount
	}
	if b.to = page.After; page.UpTo <= page.After {
		return b, nil
	}
	rows, err := r.store.ReadEvents(statement, r.db, page)
	if err != nil {
		return b, fmt.Errorf("read events: %w", err)
	}
	size, whole := 0, len(rows) < limit
	for _, row := range rows {
		record, dropped, err := s.outgoing(ctx, r.registry.Codec(), row)
		if err != nil {
			b.failed, b.err = &row, err
			return b, nil
		}
		if size += len(record.Body); size > batchSize && len(b.records) > 0 {
			return b, nil
		}
		b.to = row.Position
		if !dropped {
			b.records, b.events = append(b.records, record), append(b.events, row)
		}
	}
	if whole {
		b.to = page.UpTo
		s.window = min(2*s.window, maxWindow)
	}
	return b, nil
}

// outgoing makes a record of an event, unless that is obsolete.
func (l *logging) outgoing(ctx context.Context, codec bus.Codec, row store.Event) (record Record, dropped bool, err error) {
	defer func() { // functions of the application
		if value := recover(); value != nil {
			err = fmt.Errorf("relay: event %q: %w", row.Type, &bus.PanicError{Value: value, Stack: debug.Stack()})
		}
	}()
	text, err := l.types.Upcast(ctx, row.Type, row.Schema, row.Data)
	if errors.Is(err, eventlog.ErrDrop) {
		return Record{}, true, nil
	}
	if err != nil {
		return Record{}, false, err
	}
	m := &bus.Message{
		ID: row.ID, PayloadType: l.types.Names(row.Type)[0], Payload: text, Headers: store.Headers(row.Headers), CreatedAt: row.RecordedAt.Time,
		Event: &bus.Event{Sequence: row.Sequence, Stream: row.Stream, Version: row.Version, Position: row.Position, Schema: row.Schema},
	}
	record, err = l.record(codec, m)
	if m.PayloadType == tombstone && !l.structured {
		record.Body = nil
	}
	return record, false, err
}

// put hands records to the broker, and returns how many of them are there, up to the first that
// is not, with the mark of the newest.
func (s *shard) put(ctx context.Context, records []Record) (n int, mark int64, err error) {
	calling, cancel := context.WithTimeoutCause(ctx, s.timeout, errTimeout)
	defer cancel()
	if s.appender != nil {
		newest, err := s.appender.Append(calling, s.number, uint64(s.sub.Mark), records)
		if err == nil && (newest == 0 || newest > math.MaxInt64) {
			err = fmt.Errorf("relay: append: the mark is %s: 1 to %d is allowed", strconv.FormatUint(newest, 10), int64(math.MaxInt64))
		}
		if err != nil {
			return 0, s.sub.Mark, err
		}
		return len(records), int64(newest), nil
	}
	results := s.pub.Publish(calling, records)
	if len(results) != 0 && len(results) != len(records) {
		return 0, s.sub.Mark, fmt.Errorf("relay: publish: %d results for %d records: one for each is allowed, or none", len(results), len(records))
	}
	for i, err := range results {
		if err != nil {
			return i, s.sub.Mark, err
		}
	}
	return len(records), s.sub.Mark, nil
}
