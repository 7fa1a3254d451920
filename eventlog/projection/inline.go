package projection

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/logaccess"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Inline is a projection applied in the transaction of the append: its tables are never behind.
// Its error fails the append. It suits tables with one row per stream, which the append has locked;
// if several streams write to one row, their appends block each other.
//
// Set it in eventlog.LogConfig.Inline of every process that appends: the tables miss events that a
// process without it appends. After adding or changing an inline projection, call [Inline.Rebuild]
// once all processes have it.
//
// It uses these fields of the Projection: Name, Reset, and either On or Batch with Types. Categories
// are rejected. No runner runs it, and no chain wraps it. Make it with [NewInline]. It is safe for
// concurrent use.
type Inline struct {
	projection Projection
	reader     *reader
}

// NewInline makes an inline projection of events in types. It reports all configuration errors at
// once.
func NewInline(types *eventlog.Types, p Projection) (*Inline, error) {
	if types == nil {
		return nil, errors.New("projection: NewInline: the types are nil")
	}
	reader, err := newReader(p, types)
	if err != nil {
		return nil, fmt.Errorf("projection: NewInline: %w", err)
	}
	if len(p.Categories) > 0 {
		return nil, fmt.Errorf("projection: NewInline: projection %q: Categories must be empty: an inline projection reads all categories",
			p.Name)
	}
	return &Inline{projection: p, reader: reader}, nil
}

// InlineName implements eventlog.Inline.
func (i *Inline) InlineName() string { return i.projection.Name }

// Handles implements eventlog.Inline.
func (i *Inline) Handles(payloadType string) bool {
	return slices.Contains(i.reader.stored, payloadType)
}

// ApplyInline implements eventlog.Inline.
func (i *Inline) ApplyInline(ctx context.Context, tx bun.Tx, events []eventlog.RecordedEvent) error {
	if i.projection.Batch != nil {
		return i.projection.Batch(ctx, tx, events)
	}
	for _, e := range events {
		m := &bus.Message{
			ID: e.ID, PayloadType: e.Type, Value: e.Data, Headers: e.Headers, Consumer: i.projection.Name, Attempt: 1,
			CreatedAt: e.RecordedAt,
			Event:     &bus.Event{Sequence: e.Sequence, Stream: e.Stream, Version: e.Version, Position: e.Position, Schema: e.Schema},
		}
		if err := i.reader.apply[e.Type].fn(bus.ContextWithMessage(ctx, m), tx, e.Data); err != nil {
			return err
		}
	}
	return nil
}

// Rebuild empties the tables with Reset and applies every event again, in one transaction that
// blocks appends of these events in all processes that have the inline projection. Events that
// other processes append meanwhile may be missed. For a log too long for that, use a projection that
// is not inline.
func (i *Inline) Rebuild(ctx context.Context, db *bun.DB, log *eventlog.Log) error {
	switch {
	case db == nil || log == nil || logaccess.Registry(log) == nil:
		return fmt.Errorf(
			"projection: rebuild inline %q: the database handle is nil, or the log was not made by eventlog.NewLog", i.projection.Name,
		)
	case i.projection.Reset == nil:
		return fmt.Errorf("projection: rebuild inline %q: Reset is nil: set Projection.Reset", i.projection.Name)
	}
	s, err := store.For(db.Dialect().Name(), logaccess.Registry(log).Tables())
	if err == nil {
		err = s.Events()
	}
	if err == nil {
		err = txn.InTx(ctx, db, func(tx bun.Tx) error { return i.rebuild(ctx, s, db, tx, log) })
	}
	return dberr.Wrap(err, "projection: rebuild inline %q", i.projection.Name)
}

// rebuild reads by sequence: under the lock no process with the projection is appending its events,
// and they need no positions.
func (i *Inline) rebuild(ctx context.Context, s *store.Store, db *bun.DB, tx bun.Tx, log *eventlog.Log) error {
	if err := s.AdvisoryLock(ctx, tx, i.projection.Name, true); err != nil {
		return err
	}
	if err := resetIn(ctx, s, db, tx, i.reader.Projection); err != nil {
		return err
	}
	page := store.Page{
		UpTo: math.MaxInt64, Limit: i.reader.BatchSize, BySequence: true, EventFilter: store.EventFilter{Types: i.reader.stored},
	}
	for {
		rows, err := s.EventLog.ReadEvents(ctx, tx, page)
		if err != nil || len(rows) == 0 {
			return err
		}
		var events []eventlog.RecordedEvent
		for _, row := range rows {
			page.After = row.Sequence
			m := (&batch{shard: i.reader.shards[0]}).message(row, true)
			data, err := logaccess.Decode(ctx, log, m)
			if access.Obsolete(err) {
				continue
			}
			if err != nil {
				return err
			}
			events = append(events, recorded(m, data))
		}
		if len(events) == 0 { // all are obsolete
			continue
		}
		if err := i.ApplyInline(txn.Within(ctx), tx, events); err != nil {
			return err
		}
	}
}
