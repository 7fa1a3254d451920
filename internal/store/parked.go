package store

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// Parked is an event that a reader has parked.
type Parked struct {
	Name     string         `bun:"name"`
	Version  int            `bun:"version"`
	Position int64          `bun:"position"`
	Stream   string         `bun:"stream"`
	Reason   string         `bun:"reason"`
	Replay   bool           `bun:"replay"` // see [Event]
	ParkedAt dialect.Moment `bun:"parked_at"`
}

// Park parks an event.
func (s *ReaderStore) Park(ctx context.Context, tx bun.Tx, p Parked) error {
	err := s.names.Exec(ctx, tx, `INSERT INTO {parked} (name, version, position, stream, reason, replay, parked_at) VALUES (?, ?, ?, ?, ?, ?, {now})
ON CONFLICT (name, version, position) DO UPDATE SET reason = EXCLUDED.reason, parked_at = EXCLUDED.parked_at`,
		p.Name, p.Version, p.Position, p.Stream, errorlog.Clean(p.Reason, errorlog.MaxBytes), p.Replay)
	return dberr.Wrap(err, "park")
}

// Parked returns events that one version of a reader has parked, in order, behind a position.
func (s *ReaderStore) Parked(ctx context.Context, db bun.IDB, name string, version int, after int64, limit int) ([]Parked, error) {
	return read[[]Parked](ctx, s.tables, db, `SELECT name, version, position, stream, reason, replay, parked_at FROM {parked}
WHERE name = ? AND version = ? AND position > ? AND parked_at IS NOT NULL ORDER BY position LIMIT ?`, name, version, after, limit)
}

// ParkedPositions returns the positions of such events, in order.
func (s *ReaderStore) ParkedPositions(ctx context.Context, db bun.IDB, name string, version, limit int) ([]int64, error) {
	return read[[]int64](ctx, s.tables, db,
		`SELECT position FROM {parked} WHERE name = ? AND version = ? AND parked_at IS NOT NULL ORDER BY position LIMIT ?`, name, version, limit)
}

// CountParked counts these events, up to a limit.
func (s *ReaderStore) CountParked(ctx context.Context, db bun.IDB, name string, version, limit int) (int, error) {
	return read[int](ctx, s.tables, db,
		`SELECT count(*) AS n FROM (SELECT 1 FROM {parked} WHERE name = ? AND version = ? AND parked_at IS NOT NULL LIMIT ?) p`, name, version, limit)
}

// Unpark deletes the record of a parked event. It reports whether there was one, and whether the event is a
// replay.
func (s *ReaderStore) Unpark(
	ctx context.Context, tx bun.Tx, name string, version int, position int64,
) (replay, found bool, err error) {
	return first[bool](ctx, s.tables, tx,
		`DELETE FROM {parked} WHERE name = ? AND version = ? AND position = ? AND parked_at IS NOT NULL RETURNING replay`, name, version, position)
}

// Applied deletes the records of events that an earlier run or version has parked, and this one has applied.
func (s *ReaderStore) Applied(ctx context.Context, tx bun.Tx, name string, version int, positions []int64) error {
	if len(positions) == 0 {
		return nil
	}
	return s.names.Exec(ctx, tx, `DELETE FROM {parked} WHERE name = ? AND version = ? AND parked_at IS NULL AND position IN (?)`,
		name, version, bun.List(positions))
}

// DropParked deletes all such records of one version, for a reader without replays.
func (s *ReaderStore) DropParked(ctx context.Context, tx bun.Tx, name string, version int) error {
	return s.names.Exec(ctx, tx, `DELETE FROM {parked} WHERE name = ? AND version = ?`, name, version)
}

// inheritParked records for a shard of a new version the events that other versions have parked and none
// has applied.
const inheritParked = `INSERT INTO {parked} (name, version, position, stream, reason)
SELECT DISTINCT p.name, ?, p.position, p.stream, '' FROM {parked} p JOIN {events} e ON e.{place} = p.position
WHERE p.name = ? AND p.version <> ? AND NOT p.replay AND p.position <= ? AND e.slot >= ? AND e.slot < ?
  AND NOT EXISTS (SELECT 1 FROM {subscriptions} s WHERE s.name = p.name AND s.version <> ?
    AND (s.position >= p.position OR s.replay_until >= p.position)
    AND e.slot >= s.shard * ? / s.shards AND e.slot < (s.shard + 1) * ? / s.shards
    AND NOT EXISTS (SELECT 1 FROM {parked} q WHERE q.name = s.name AND q.version = s.version AND q.position = p.position AND NOT q.replay))`
