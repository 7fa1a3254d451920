package eventlog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

const (
	readPage   = 500    // events read at once
	readWindow = 50_000 // positions read by one statement, at most
	numberPage = 2000   // events numbered in one transaction
	// numberPause is how long to wait for a process that assigns positions.
	numberPause = 2 * time.Millisecond
)

// RecordedEvent is a stored event.
type RecordedEvent struct {
	// ID is the same in every delivery of the event: the idempotency key for effects outside the
	// database.
	ID uuid.UUID
	// Sequence identifies the event; see bus.Event.
	Sequence int64
	// Stream is the name of the stream. Version is the event's number in it, starting at 1.
	Stream  string
	Version int64
	// Position is the event's number in the whole log, starting at 1 without gaps; 0 until it is
	// assigned.
	Position int64
	// Type and Schema are as stored; Data is in the newest schema.
	Type   string
	Schema int
	// Data is the upcast event, of its registered Go type.
	Data    bus.Payload
	Headers map[string]string
	// RecordedAt is on the database's clock. Events are not ordered by it. It is zero while the
	// event is being appended.
	RecordedAt time.Time
}

// recorded decodes an event; false means that it is skipped.
func (l *Log) recorded(ctx context.Context, row store.Event) (RecordedEvent, bool, error) {
	r := RecordedEvent{
		ID: row.ID, Sequence: row.Sequence, Stream: row.Stream, Version: row.Version, Position: row.Position,
		Type: row.Type, Schema: row.Schema, Headers: store.Headers(row.Headers), RecordedAt: row.RecordedAt.Time,
	}
	var err error
	r.Data, err = l.types.decode(ctx, l.registry.Codec(), row.Type, row.Schema, row.Data)
	if access.Obsolete(err) {
		return r, false, nil
	}
	if err != nil {
		return r, false, fmt.Errorf("stream %q version %d: %w", row.Stream, row.Version, err)
	}
	return r, true, nil
}

// decode is logaccess.Decode.
func decode(ctx context.Context, l *Log, m *bus.Message) (bus.Payload, error) {
	if m.Event == nil {
		return nil, errors.New("eventlog: decode: the message delivers no event")
	}
	return l.types.decode(ctx, l.registry.Codec(), m.PayloadType, m.Event.Schema, m.Payload)
}

// ReadStream reads the events of a stream after a version, 0 for all, in order. In the transaction
// of an append it includes the appended events. ReadStream skips erased and obsolete
// events: see [Event]. Use [Log.FoldStream] for the version to append at. The sequence ends with the
// first error: a database error, an *[UnknownTypeError], an error of an upcaster or the codec, or
// bus.ErrInvalidText for an invalid stream name.
func (l *Log) ReadStream(ctx context.Context, db bus.Handle, stream string, after int64) iter.Seq2[RecordedEvent, error] {
	return l.read(ctx, db, "read stream", func() nextPage {
		after := after
		return l.streamPages(ctx, stream, &after)
	})
}

// FoldStream calls apply for each event of [Log.ReadStream] and returns the version of the stream's
// last event, skipped events included. Pass that version to [Log.Append]. If there are no events
// after it, FoldStream returns after. The first error of apply ends the call and is returned
// unchanged.
func (l *Log) FoldStream(
	ctx context.Context, db bus.Handle, stream string, after int64, apply func(RecordedEvent) error,
) (version int64, err error) {
	version = after
	events := l.read(ctx, db, "fold stream", func() nextPage { return l.streamPages(ctx, stream, &version) })
	for event, err := range events {
		if err == nil {
			err = apply(event)
		}
		if err != nil {
			return 0, err
		}
	}
	return version, nil
}

// streamPages reads the events of a stream and moves after to the last version. A transaction that
// is retried after a conflict locks the stream first, so that it cannot conflict again.
func (l *Log) streamPages(ctx context.Context, stream string, after *int64) nextPage {
	begun := false
	return func(s *store.Store, db bun.IDB) (rows []store.Event, more bool, err error) {
		if !begun {
			if err := checkText("stream", stream); err != nil {
				return nil, false, err
			}
			if tx, ok := db.(bun.Tx); ok && txn.Repeated(ctx) {
				if err := s.EventLog.LockStream(ctx, tx, stream); err != nil {
					return nil, false, err
				}
			}
			begun = true
		}
		rows, err = s.EventLog.ReadStream(ctx, db, stream, *after, readPage)
		if len(rows) > 0 {
			*after = rows[len(rows)-1].Version
		}
		return rows, len(rows) == readPage, err
	}
}

// checkText rejects text that no database can compare. Text that is merely too long is just not
// found.
func checkText(what, s string) error {
	if err := limits.CheckText(s); err != nil {
		return fmt.Errorf("%s %q: %w: %w", what, s, bus.ErrInvalidText, err)
	}
	return nil
}

// Filter selects events of the log; empty fields select all.
type Filter struct {
	// Types are the names of events. Their aliases are included.
	Types []string
	// Categories are stream categories: the stream's name up to the first "-".
	Categories []string
}

// checkCategories returns an error for a category that no stream can have.
func checkCategories(categories []string) error {
	for _, c := range categories {
		if c == "" || strings.Contains(c, "-") {
			return fmt.Errorf(
				"category %q: %w: the text before the first \"-\" of a stream's name is allowed", c, bus.ErrInvalidOption,
			)
		}
		if err := checkText("category", c); err != nil {
			return err
		}
	}
	return nil
}

// ReadLog reads the events after a position, 0 for all, in the order of their positions. It ends at
// the position that is the last when reading begins. Skipped events and errors are as for
// [Log.ReadStream]. For an unknown type in the filter the error is an
// *[UnknownTypeError], and for an invalid category bus.ErrInvalidOption.
//
// Processes that run projections assign positions to events. If none runs, call
// [Log.AssignPositions] first.
func (l *Log) ReadLog(ctx context.Context, db bus.Handle, after int64, filter Filter) iter.Seq2[RecordedEvent, error] {
	return l.read(ctx, db, "read log", func() nextPage {
		after, head, window := after, int64(-1), int64(readPage)
		var types []string
		return func(s *store.Store, db bun.IDB) (rows []store.Event, more bool, err error) {
			if head < 0 {
				if err = checkCategories(filter.Categories); err != nil {
					return nil, false, err
				}
				if types, err = l.types.withAliases(filter.Types); err != nil {
					return nil, false, err
				}
				if head, err = s.EventLog.Head(ctx, db); err != nil {
					return nil, false, err
				}
			}
			upTo := min(head, after+window)
			rows, err = s.EventLog.ReadEvents(ctx, db, store.Page{After: after, UpTo: upTo, Limit: readPage,
				EventFilter: store.EventFilter{Types: types, Categories: filter.Categories}})
			after = upTo
			if len(rows) == readPage {
				after = rows[len(rows)-1].Position
			} else { // few events match the filter
				window = min(2*window, readWindow)
			}
			return rows, after < head, err
		}
	})
}

// nextPage reads the next events and reports whether there may be more.
type nextPage func(*store.Store, bun.IDB) (rows []store.Event, more bool, err error)

// read yields the events page by page.
func (l *Log) read(ctx context.Context, db bus.Handle, operation string, start func() nextPage) iter.Seq2[RecordedEvent, error] {
	return func(yield func(RecordedEvent, error) bool) {
		err := l.through(ctx, db, func(s *store.Store, db bun.IDB) error { return l.yieldPages(ctx, s, db, start(), yield) })
		if err != nil {
			yield(RecordedEvent{}, fmt.Errorf("eventlog: %s: %w", operation, dberr.Explained(err)))
		}
	}
}

// yieldPages yields events until there are no more, or yield returns false.
func (l *Log) yieldPages(ctx context.Context, s *store.Store, db bun.IDB, page nextPage, yield func(RecordedEvent, error) bool) error {
	for more := true; more; {
		var rows []store.Event
		var err error
		if rows, more, err = page(s, db); err != nil {
			return err
		}
		for _, row := range rows {
			event, ok, err := l.recorded(ctx, row)
			if err != nil {
				return err
			}
			if ok && !yield(event, nil) {
				return nil
			}
		}
	}
	return nil
}

// Head returns the last position of the log, or 0 for an empty log.
func (l *Log) Head(ctx context.Context, db bus.Handle) (head int64, err error) {
	err = l.through(ctx, db, func(s *store.Store, db bun.IDB) (err error) {
		head, err = s.EventLog.Head(ctx, db)
		return err
	})
	return head, dberr.Wrap(err, "eventlog: head")
}
