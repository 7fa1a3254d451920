package eventlog

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Tombstone erases a stream in the transaction: the payloads and headers of its
// events are removed, and so are its snapshots. What is left are their places in
// the log and their ids. The last event of the stream is a [Tombstoned] then, for
// projections and consumers to erase what they have made of it; the stream takes
// no more, nor snapshots. A message that was to deliver an erased event is
// discarded when it runs.
//
// A stream that does not exist is a *[ConflictError], one that is tombstoned
// already [ErrTombstoned]. It does not reach the headers and the errors of poisoned
// messages, nor what a person has edited among them, until they are deleted; nor
// backups, nor what other systems were told.
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
		if err := s.Erase(ctx, db, stream, last.Version); err != nil {
			return fmt.Errorf("eventlog: tombstone: %w", dberr.Explained(err))
		}
		return nil
	})
}
