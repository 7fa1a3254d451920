package store

import (
	"context"

	"github.com/uptrace/bun"
)

// Snapshot is a state of a stream.
type Snapshot struct {
	Version int64  `bun:"version"`
	State   []byte `bun:"state"`
}

// Snapshot returns the last saved state of a kind.
func (s *EventStore) Snapshot(ctx context.Context, db bun.IDB, stream, kind string) (Snapshot, bool, error) {
	return first[Snapshot](ctx, s.tables, db, `SELECT version, state FROM {snapshots} WHERE stream = ? AND kind = ?`, stream, kind)
}

// SaveSnapshot saves a state unless there is one of a later version.
func (s *EventStore) SaveSnapshot(ctx context.Context, tx bun.IDB, stream, kind string, snapshot Snapshot) error {
	return s.names.Exec(ctx, tx, `INSERT INTO {snapshots} AS s (stream, kind, version, state, created_at) VALUES (?, ?, ?, ?, {now})
ON CONFLICT (stream, kind) DO UPDATE SET version = EXCLUDED.version, state = EXCLUDED.state, created_at = EXCLUDED.created_at
WHERE s.version < EXCLUDED.version`, stream, kind, snapshot.Version, string(snapshot.State))
}
