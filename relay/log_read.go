package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	maxWindow = 50_000  // maximum positions that one batch reads
	batchSize = 4 << 20 // bytes of bodies in a batch, except for its last record
)

// mostHangs is how often a function may hang at an event, which then fails for good: each hang
// leaves a goroutine behind.
const mostHangs = 2

// eventError is a failure of one event. Whatever it wraps, the broker was not asked.
type eventError struct{ error }

// Unwrap returns the error itself.
func (e eventError) Unwrap() error { return e.error }

type outgoingBatch struct {
	records  []broker.Record
	events   []store.Event  // of the records
	messages []*bus.Message // the same, for telemetry
	revision int64          // of the broker's last record before it
	to       int64          // the position after it, once all of it is published
	failed   *store.Event   // the event after these that could not become a record
	err      error          // why
	smaller  int            // size of the next batch, because a function hangs at the event after it
}

// next reads the events after the checkpoint.
func (s *shard) next(ctx context.Context) (b outgoingBatch, err error) {
	statement, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	limit := s.limit
	if s.sub.Attempts > 0 {
		limit = 1
	}
	page := store.Page{
		After: s.sub.Position, UpTo: min(s.sub.Head, s.sub.Position+s.window), Limit: limit,
		EventFilter: store.EventFilter{Types: s.reads},
	}
	if s.logConfig.Shards > 1 {
		page.SlotFrom, page.SlotTo = s.number*store.Slots/s.logConfig.Shards, (s.number+1)*store.Slots/s.logConfig.Shards
	}
	b.to, b.revision = page.After, s.sub.Mark
	if page.UpTo <= page.After {
		return b, nil
	}
	rows, err := s.store.EventLog.ReadEvents(statement, s.db, page)
	if err != nil {
		return b, fmt.Errorf("read events: %w", err)
	}
	s.convert(ctx, &b, rows)
	if last := len(rows) - 1; b.failed == nil && b.smaller == 0 && len(rows) < limit && (last < 0 || b.to == rows[last].Position) {
		b.to = page.UpTo
		s.window = min(2*s.window, maxWindow)
	}
	return b, nil
}

// convert makes records of events with the application's functions. A function that hangs is
// abandoned; the events before it are published first.
func (s *shard) convert(ctx context.Context, b *outgoingBatch, rows []store.Event) {
	if len(rows) == 0 {
		return
	}
	begin, current := *b, new(atomic.Int64)
	converted, err := isolate.Ask(
		ctx, "relay: the routes and upcasters", &s.abandoned, s.config.PublishTimeout, func(ctx context.Context) (outgoingBatch, error) {
			return s.convertAll(ctx, begin, rows, current), nil
		},
	)
	at := int(current.Load())
	switch {
	case err == nil:
		*b = converted
	case errors.Is(err, isolate.ErrBusy): // not a failure of the event
		b.failed, b.err = &rows[0], err
	case at > 0:
		b.smaller = at
	default:
		b.failed, b.err = &rows[0], eventError{fmt.Errorf("relay: event %q: a route or upcaster has not returned: %w", rows[0].Type, err)}
	}
}

// convertAll stores in current which event it converts.
func (s *shard) convertAll(ctx context.Context, b outgoingBatch, rows []store.Event, current *atomic.Int64) outgoingBatch {
	size, begun := 0, time.Now()
	for i, row := range rows {
		current.Store(int64(i))
		if !slices.Contains(s.stored, row.Type) {
			b.failed, b.err = &row, fmt.Errorf("%w: this process has no route for its type", errNewer)
			return b
		}
		var record broker.Record
		var m *bus.Message
		err := isolate.Try(fmt.Sprintf("relay: event %q", row.Type), func() (err error) {
			record, m, err = s.outgoing(ctx, s.registry.Codec(), row)
			return err
		})
		if err != nil {
			b.failed, b.err = &row, eventError{err}
			if access.IsNewer(err) {
				b.err = fmt.Errorf("%w: %w", errNewer, err)
			}
			return b
		}
		size += len(record.Body)
		if len(b.records) > 0 && (size > batchSize || time.Since(begun) > s.config.PublishTimeout/2) {
			return b
		}
		b.to = row.Position
		if m != nil {
			b.records, b.events, b.messages = append(b.records, record), append(b.events, row), append(b.messages, m)
		}
	}
	return b
}

// outgoing makes a record and a message from an event. The message is nil if the event is
// obsolete.
func (l *logForwarder) outgoing(ctx context.Context, codec bus.Codec, row store.Event) (record broker.Record, m *bus.Message, err error) {
	text, err := l.types.Upcast(ctx, row.Type, row.Schema, row.Data)
	if access.Obsolete(err) {
		return broker.Record{}, nil, nil
	}
	if err != nil {
		return broker.Record{}, nil, err
	}
	_, names := l.types.Lookup(row.Type)
	m = &bus.Message{
		ID: row.ID, Consumer: l.name, PayloadType: names[0], Payload: text, Headers: store.Headers(row.Headers),
		CreatedAt: row.RecordedAt.Time,
		Event:     &bus.Event{Sequence: row.Sequence, Stream: row.Stream, Version: row.Version, Position: row.Position, Schema: row.Schema},
	}
	record, err = l.record(ctx, codec, m)
	if m.PayloadType == tombstone && !l.config.Structured {
		record.Body = nil
	}
	return record, m, err
}
