package store

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

const eventColumns = `e.sequence, e.{place} AS position, e.event_id, e.stream, e.version, e.event_type, e.schema, e.data, e.headers, e.recorded_at`

// Reservation asks for the next versions of a stream.
type Reservation struct {
	Stream, Category string
	// Want is the version that the stream must have, or one of the others.
	Want int64
	// Count is the number of versions.
	Count int
}

// Values of Reservation.Want other than a version.
const (
	NewStream int64 = 0  // there is no such stream yet
	AnyStream int64 = -1 // the stream may exist or not
	OldStream int64 = -2 // the stream exists
)

// Reserved is the answer to a Reservation.
type Reserved struct {
	OK      bool  `bun:"-"`
	Version int64 // of the stream: after the reservation, or as it is
	Closed  bool  // the stream accepts no more events
}

const (
	reserveAny = `INSERT INTO {streams} AS s (stream, category, version, created_at) VALUES (?, ?, ?, {now})
ON CONFLICT (stream) DO UPDATE SET version = s.version + EXCLUDED.version WHERE NOT s.closed RETURNING version`
	reserveNew = `INSERT INTO {streams} (stream, category, version, created_at) VALUES (?, ?, ?, {now})
ON CONFLICT (stream) DO NOTHING RETURNING version`
	reserveOld    = `UPDATE {streams} SET version = version + ? WHERE stream = ? AND NOT closed RETURNING version`
	reserveExact  = `UPDATE {streams} SET version = version + ? WHERE stream = ? AND NOT closed AND version = ? RETURNING version`
	readStreamRow = `SELECT version, closed FROM {streams} WHERE stream = ?`
)

// Reserve locks a stream until the end of the transaction and takes its next versions. A stream
// that is not as wanted is no database error, so the transaction stays usable.
func (s *EventStore) Reserve(ctx context.Context, tx bun.IDB, r Reservation) (Reserved, error) {
	var q *bun.RawQuery
	switch r.Want {
	case AnyStream:
		q = s.names.Query(ctx, tx, reserveAny, r.Stream, r.Category, r.Count)
	case NewStream:
		q = s.names.Query(ctx, tx, reserveNew, r.Stream, r.Category, r.Count)
	case OldStream:
		q = s.names.Query(ctx, tx, reserveOld, r.Count, r.Stream)
	default:
		q = s.names.Query(ctx, tx, reserveExact, r.Count, r.Stream, r.Want)
	}
	var versions []int64
	if err := q.Scan(ctx, &versions); err != nil {
		return Reserved{}, fmt.Errorf("lock stream: %w", err)
	}
	if len(versions) == 1 {
		return Reserved{OK: true, Version: versions[0]}, nil
	}
	return s.stream(ctx, tx, r.Stream)
}

// LockStream waits for appends to a stream and prevents others until the end of the transaction.
// Where one writer locks the whole database, that is the lock.
func (s *EventStore) LockStream(ctx context.Context, tx bun.Tx, stream string) error {
	if !s.RowLocks() {
		return s.WriteFirst(ctx, tx)
	}
	var versions []int64
	if err := s.names.Query(ctx, tx, `SELECT version FROM {streams} WHERE stream = ? FOR UPDATE`, stream).Scan(ctx, &versions); err != nil {
		return fmt.Errorf("lock stream: %w", err)
	}
	return nil
}

// KeepOpen keeps a stream from being closed until the end of the transaction, and reports whether
// it accepts events. It writes the row: a transaction with a stricter isolation that began to read
// earlier would not notice a lock that is gone.
func (s *EventStore) KeepOpen(ctx context.Context, tx bun.IDB, stream string) (open bool, err error) {
	open, err = s.names.ChangedOne(ctx, tx, `UPDATE {streams} SET version = version WHERE stream = ? AND NOT closed`, stream)
	if err != nil {
		return false, fmt.Errorf("lock stream: %w", err)
	}
	if open {
		return true, nil
	}
	row, err := s.stream(ctx, tx, stream)
	return err == nil && !row.Closed, err // it may not exist yet
}

func (s *EventStore) stream(ctx context.Context, db bun.IDB, stream string) (Reserved, error) {
	row, _, err := first[Reserved](ctx, s.tables, db, readStreamRow, stream)
	return row, dberr.Wrap(err, "read stream")
}

// InsertEvents writes events in the order given, which becomes their order in
// the log, and fills in their sequence numbers.
func (s *EventStore) InsertEvents(ctx context.Context, tx bun.IDB, rows []*dialect.NewEvent) error {
	for _, part := range dialect.Cut(rows, dialect.InsertBytes, func(row *dialect.NewEvent) int { return len(row.Data) }) {
		if err := s.dialect.InsertEvents(ctx, tx, part); err != nil {
			return fmt.Errorf("insert events: %w", err)
		}
	}
	return nil
}

const readStream = `SELECT ` + eventColumns + ` FROM {events} e
WHERE e.stream = ? AND e.version > ? AND e.data IS NOT NULL ORDER BY e.version LIMIT ?`

// ReadStream returns events of a stream after a version. Erased ones are left out.
func (s *EventStore) ReadStream(ctx context.Context, db bun.IDB, stream string, after int64, limit int) ([]dialect.Event, error) {
	return read[[]dialect.Event](ctx, s.tables, db, readStream, stream, after, limit)
}

// EventFilter selects events; empty fields select all.
type EventFilter struct {
	Types, Categories []string
	SlotFrom, SlotTo  int // from and up to, when SlotTo is not 0
	// Reader and Version are the projection for which Event.Replay and, with ParkStreams, Event.Parked are
	// filled in.
	Reader      string
	Version     int
	ParkStreams bool
}

// Page asks for numbered events after one place and up to another.
type Page struct {
	After, UpTo int64
	Limit       int
	ReplayUntil int64 // of the reader's shard
	// BySequence reads by sequence numbers, numbered or not. The caller makes sure that no event is
	// still uncommitted.
	BySequence bool
	EventFilter
}

// ReadEvents returns the events of a page in their order. Erased ones are left out.
func (s *EventStore) ReadEvents(ctx context.Context, db bun.IDB, p Page) ([]dialect.Event, error) {
	var t terms
	columns := eventColumns
	if p.ParkStreams {
		columns += `, EXISTS (SELECT 1 FROM {parked} k WHERE k.name = ? AND k.version = ? AND k.stream = e.stream AND k.parked_at IS NOT NULL) AS parked`
		t.args = append(t.args, p.Reader, p.Version)
	}
	if p.After < p.ReplayUntil {
		columns += `, (e.{place} <= ? AND NOT EXISTS (SELECT 1 FROM {parked} k WHERE k.name = ? AND k.version = ? AND k.position = e.{place} AND NOT k.replay)) AS replay`
		t.args = append(t.args, p.ReplayUntil, p.Reader, p.Version)
	}
	by := `e.{place}`
	if p.BySequence {
		by = `e.sequence`
	}
	t.add(true, by+` > ? AND `+by+` <= ? AND e.data IS NOT NULL`, p.After, p.UpTo)
	t.add(len(p.Types) > 0, `e.event_type IN (?)`, bun.List(p.Types))
	t.add(len(p.Categories) > 0, `e.category IN (?)`, bun.List(p.Categories))
	t.add(p.SlotTo > 0, `e.slot >= ? AND e.slot < ?`, p.SlotFrom, p.SlotTo)
	return read[[]dialect.Event](
		ctx,
		s.tables,
		db,
		`SELECT `+columns+` FROM {events} e WHERE `+t.where()+` ORDER BY `+by+` LIMIT ?`,
		append(t.args, p.Limit)...)
}

// Head returns the place of the last numbered event.
func (s *EventStore) Head(ctx context.Context, db bun.IDB) (int64, error) {
	return read[int64](ctx, s.tables, db, `SELECT {last} AS position`)
}

// Place returns the place of an event, or false while it has none.
func (s *EventStore) Place(ctx context.Context, db bun.IDB, sequence int64) (int64, bool, error) {
	return first[int64](ctx, s.tables, db, `SELECT {place} AS position FROM {events} WHERE sequence = ? AND {place} IS NOT NULL`, sequence)
}

// LastUnnumbered returns the greatest sequence number up to upTo of an event without a place, or 0.
func (s *EventStore) LastUnnumbered(ctx context.Context, db bun.IDB, upTo int64) (int64, error) {
	return read[int64](ctx, s.tables, db,
		`SELECT COALESCE(MAX(e.sequence), 0) AS last FROM {events} e WHERE {unplaced} AND e.sequence <= ?`, upTo)
}

// Erase empties the events of a stream before a version and what is kept of their messages, closes the
// stream, and removes what was derived from it.
func (s *EventStore) Erase(ctx context.Context, tx bun.IDB, stream string, before int64) error {
	for _, q := range []*bun.RawQuery{
		s.names.Query(ctx, tx, `UPDATE {events} SET data = NULL, headers = NULL WHERE stream = ? AND version < ?`, stream, before),
		s.names.Query(ctx, tx, `UPDATE {consumed} SET payload = NULL, headers = NULL, reason = NULL
WHERE message_id IN (SELECT event_id FROM {events} WHERE stream = ? AND version < ?)`, stream, before),
		s.names.Query(ctx, tx, `UPDATE {streams} SET closed = ? WHERE stream = ?`, true, stream),
		s.names.Query(ctx, tx, `DELETE FROM {snapshots} WHERE stream = ?`, stream),
		s.names.Query(ctx, tx, `DELETE FROM {parked} WHERE stream = ?`, stream),
	} {
		if _, err := q.Exec(ctx); err != nil {
			return fmt.Errorf("erase stream: %w", err)
		}
	}
	return nil
}

// Slots is the number of slots over which streams are spread. A shard of a
// projection has a range of them.
const Slots = 64

// SlotsOf returns the slots of a shard: from from, up to but not including to.
func SlotsOf(shard, shards int) (from, to int) {
	return shard * Slots / shards, (shard + 1) * Slots / shards
}
