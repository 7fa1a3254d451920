package store

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/handoff"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// HandOff is a claim that the transaction of a producer writes.
type HandOff = dialect.HandOff

// HandsOff reports whether rows may be handed off: nothing but their consumers
// decides when they run. A test kit decides itself.
func HandsOff(ctx context.Context, rows []dialect.NewMessage) bool {
	if dialect.HasFixedClock(ctx) {
		return false
	}
	bytes := 0
	for i := range rows {
		row := &rows[i]
		if row.InsertID != "" || row.OrderKey != "" || row.GroupKey != "" || row.Priority != 0 || row.Delay != 0 || !row.AvailableAt.IsZero() ||
			!row.CreatedAt.IsZero() || row.Payload == "" {
			return false
		}
		bytes += len(row.Payload) + len(row.Headers)
	}
	return len(rows) > 0 && len(rows) <= dialect.MostHandedOff && bytes <= dialect.InsertBytes
}

// BeginProducing begins a transaction whose messages may be handed off to a processor, or returns an
// errors.ErrUnsupported. Plans are to be closed once it is over.
func (s *OutboxStore) BeginProducing(ctx context.Context, db *bun.DB) (dialect.RunTx, error) {
	return s.dialect.BeginProducing(ctx, db)
}

// InsertAs is [OutboxStore.Insert] for rows that may be handed off, under reserved ids and in one
// statement. planned is that of the transaction. If it returns false, the ids are of another table,
// and nothing is written.
func (s *OutboxStore) InsertAs(
	ctx context.Context, tx bun.Tx, rows []dialect.NewMessage, ids handoff.IDs, planned bool,
) (ok bool, err error) {
	ok, err = s.dialect.InsertAs(ctx, tx, rows, ids, planned)
	if err != nil {
		return false, fmt.Errorf("insert messages: %w", err)
	}
	return ok, nil
}

// InsertHandOff writes rows with a claim of all of them, in one statement. It reports whether the
// claim was written: a paused consumer has its messages wait.
func (s *OutboxStore) InsertHandOff(
	ctx context.Context, db *bun.DB, rows []dialect.NewMessage, ids handoff.IDs, h dialect.HandOff,
) (bool, error) {
	claimed, err := s.dialect.InsertHandOff(ctx, db, rows, ids, h)
	if err != nil {
		return false, fmt.Errorf("insert messages: %w", err)
	}
	return claimed, nil
}

// MessageIDs reserves ids of messages, or returns an errors.ErrUnsupported. It returns none if the
// role may not.
func (s *OutboxStore) MessageIDs(ctx context.Context, db bun.IDB, n int) (handoff.IDs, error) {
	return retried(ctx, db, func(db bun.IDB) (handoff.IDs, error) { return s.dialect.MessageIDs(ctx, db, n) })
}
