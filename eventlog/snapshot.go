package eventlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Snapshot is the state of a stream up to a version, stored to avoid reading its events. It is a
// cache: the events are authoritative.
type Snapshot struct {
	Version int64
	State   []byte // text: valid UTF-8 without NUL bytes
}

// Snapshot returns the last snapshot of a kind, and false if there is none. Package decider
// manages snapshots automatically. For a stream or kind that is not valid text it returns
// bus.ErrInvalidText.
func (l *Log) Snapshot(ctx context.Context, db bun.IDB, stream, kind string) (Snapshot, bool, error) {
	s, db, err := l.on(db)
	if err = errors.Join(err, checkText("stream", stream), checkText("kind", kind)); err != nil {
		return Snapshot{}, false, fmt.Errorf("eventlog: snapshot: %w", err)
	}
	found, ok, err := s.EventLog.Snapshot(ctx, db, stream, kind)
	return Snapshot{Version: found.Version, State: found.State}, ok, dberr.Wrap(err, "eventlog: snapshot")
}

// SaveSnapshot stores a snapshot, unless a later version is stored. For a tombstoned stream it
// returns [ErrTombstoned]. Appends to the stream, and [Log.Tombstone], wait for the end of the
// transaction. The error is bus.ErrInvalidText if the stream, kind or state is not valid text,
// bus.ErrTooLarge for a kind of more than 255 bytes, and bus.ErrInvalidOption for an invalid
// stream name.
func (l *Log) SaveSnapshot(ctx context.Context, tx bun.Tx, stream, kind string, snapshot Snapshot) error {
	s, db, err := l.on(tx)
	if err == nil {
		err = errors.Join(checkStream(stream), limits.CheckKey("kind", kind))
	}
	if bad := limits.CheckText(string(snapshot.State)); err == nil && bad != nil { // the state must not be in the error
		err = fmt.Errorf("state: %w: %w", bus.ErrInvalidText, bad)
	}
	if err == nil {
		var open bool
		if open, err = s.EventLog.KeepOpen(ctx, db, stream); err == nil && !open {
			err = fmt.Errorf("stream %q: %w", stream, ErrTombstoned)
		}
	}
	if err == nil {
		err = s.EventLog.SaveSnapshot(ctx, db, stream, kind, store.Snapshot{Version: snapshot.Version, State: snapshot.State})
	}
	return dberr.Wrap(err, "eventlog: save snapshot")
}
