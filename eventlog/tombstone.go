package eventlog

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Tombstone erases a stream in the transaction: it removes its snapshots, and the payloads and
// headers of its events. The events' positions and ids remain. It then appends a [Tombstoned]
// event, so that projections and consumers can erase what they derived from the stream. The stream
// accepts no further events or snapshots. A pending message that delivers an erased event is
// discarded when it runs.
//
// For a stream that does not exist the error is a *[ConflictError], for a tombstoned one
// [ErrTombstoned]. Tombstone does not erase headers, errors and edited payloads of poisoned
// messages: delete those. Nor does it reach backups or other systems.
func (l *Log) Tombstone(ctx context.Context, tx bun.Tx, stream string) error {
	s, db, err := l.on(tx)
	if err != nil {
		return fmt.Errorf("eventlog: tombstone: %w", err)
	}
	return txn.Whole(ctx, db, func() error {
		last, err := l.Append(ctx, tx, stream, StreamExists, Tombstoned{Stream: stream})
		if err != nil {
			return err
		}
		if err := s.EventLog.Erase(ctx, db, stream, last.Version); err != nil {
			return fmt.Errorf("eventlog: tombstone: %w", dberr.Explained(err))
		}
		return nil
	})
}
