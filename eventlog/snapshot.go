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

// Snapshot is what was made of the events of a stream up to a version, kept to
// save reading them. It is a cache: events are what counts.
type Snapshot struct {
	Version int64
	State   []byte // text: valid UTF-8 without NUL bytes
}

// Snapshot returns the last one of a kind, and false when there is none. Package
// decider does all of this by itself. A stream or kind that is no text is
// bus.ErrInvalidText.
func (l *Log) Snapshot(ctx context.Context, db bun.IDB, stream, kind string) (Snapshot, bool, error) {
	s, db, err := l.on(db)
	if err = errors.Join(err, checkText("stream", stream), checkText("kind", kind)); err != nil {
		return Snapshot{}, false, fmt.Errorf("eventlog: snapshot: %w", err)
	}
	found, ok, err := s.Snapshot(ctx, db, stream, kind)
	return Snapshot{Version: found.Version, State: found.State}, ok, dberr.Wrap(err, "eventlog: snapshot")
}

// SaveSnapshot keeps a snapshot, unless one of a later version is kept. Of a stream that
// is tombstoned, whatever was read of it before, it keeps none: that is [ErrTombstoned];
// appends to the stream, and [Log.Tombstone], wait for the end of the transaction. A
// stream, kind or state that is no text is bus.ErrInvalidText, a kind of more than 255 bytes
// bus.ErrTooLarge, a stream with a name that none can have bus.ErrInvalidOption.
func (l *Log) SaveSnapshot(ctx context.Context, tx bun.Tx, stream, kind string, snapshot Snapshot) error {
	s, db, err := l.on(tx)
	if err == nil {
		err = errors.Join(checkStream(stream), limits.CheckKey("kind", kind))
	}
	if bad := limits.CheckText(string(snapshot.State)); err == nil && bad != nil { // which is not to be shown
		err = fmt.Errorf("state: %w: %w", bus.ErrInvalidText, bad)
	}
	if err == nil {
		var open bool
		if open, err = s.KeepOpen(ctx, db, stream); err == nil && !open {
			err = fmt.Errorf("stream %q: %w", stream, ErrTombstoned)
		}
	}
	if err == nil {
		err = s.SaveSnapshot(ctx, db, stream, kind, store.Snapshot{Version: snapshot.Version, State: snapshot.State})
	}
	return dberr.Wrap(err, "eventlog: save snapshot")
}
