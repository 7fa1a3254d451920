package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/handoff"
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

// InsertToHandOff is [OutboxStore.Insert] for rows that may be handed off, in one statement. planned
// is that of the transaction.
func (s *OutboxStore) InsertToHandOff(
	ctx context.Context, tx bun.Tx, rows []dialect.NewMessage, planned bool,
) ([]handoff.Message, error) {
	inserted, err := s.dialect.InsertReturning(ctx, tx, rows, planned)
	if err != nil {
		return nil, err
	}
	type key struct {
		message  uuid.UUID
		consumer string
	}
	of := make(map[key]dialect.Inserted, len(inserted))
	for _, one := range inserted {
		of[key{one.MessageID, one.ConsumerType}] = one
	}
	messages := make([]handoff.Message, len(rows))
	for i, row := range rows {
		one, ok := of[key{row.MessageID, row.ConsumerType}]
		if !ok {
			return nil, fmt.Errorf("insert messages: message %s for %q is not among the %d inserted", row.MessageID, row.ConsumerType, len(inserted))
		}
		messages[i] = handoff.Message{
			ID: one.ID, MessageID: row.MessageID, ConsumerType: row.ConsumerType, PayloadType: row.PayloadType,
			Payload: row.Payload, Headers: row.Headers, CreatedAt: one.CreatedAt.Time,
		}
	}
	return messages, nil
}

// HandOff claims messages that the transaction has inserted, all or none. After an error the
// transaction is as before, or lost.
func (s *ClaimStore) HandOff(ctx context.Context, tx bun.Tx, h HandOff) (bool, error) { return s.dialect.HandOff(ctx, tx, h) }
