package store

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// HandOff is a claim that the transaction of a producer writes.
type HandOff = dialect.HandOff

// BeginProducing begins a transaction whose messages may be handed off to a processor, or returns an
// errors.ErrUnsupported. Plans are to be closed once it is over.
func (s *OutboxStore) BeginProducing(ctx context.Context, db *bun.DB) (dialect.RunTx, error) {
	return s.dialect.BeginProducing(ctx, db)
}

// HandsOff reports whether rows may be handed off: nothing but their consumers decides when they run.
func HandsOff(rows []dialect.NewMessage) bool {
	bytes := 0
	for i := range rows {
		row := &rows[i]
		if row.InsertID != "" || row.OrderKey != "" || row.Priority != 0 || row.Delay != 0 || !row.AvailableAt.IsZero() ||
			!row.CreatedAt.IsZero() || row.Payload == "" {
			return false
		}
		bytes += len(row.Payload) + len(row.Headers)
	}
	return len(rows) > 0 && len(rows) <= dialect.MostHandedOff && bytes <= dialect.InsertBytes
}

// InsertAs is [OutboxStore.Insert] for rows that may be handed off, under reserved ids and in one
// statement. planned is that of the transaction.
func (s *OutboxStore) InsertAs(ctx context.Context, tx bun.Tx, rows []dialect.NewMessage, ids []int64, planned bool) error {
	if err := s.dialect.InsertAs(ctx, tx, rows, ids, planned); err != nil {
		return fmt.Errorf("insert messages: %w", err)
	}
	return nil
}

// MessageIDs reserves ids of messages, or returns an errors.ErrUnsupported.
func (s *OutboxStore) MessageIDs(ctx context.Context, db bun.IDB, n int) ([]int64, error) {
	return retried(ctx, db, func(db bun.IDB) ([]int64, error) { return s.dialect.MessageIDs(ctx, db, n) })
}

// HandOff claims messages that the transaction has inserted, all or none. After an error the
// transaction is as before, or lost.
func (s *ClaimStore) HandOff(ctx context.Context, tx bun.Tx, h HandOff) (bool, error) {
	return s.dialect.HandOff(ctx, tx, h)
}
