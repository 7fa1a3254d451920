package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

const (
	insertRows  = 1000    // rows in one statement
	insertBytes = 4 << 20 // payload bytes in one statement
)

// NewMessage is one consumer's row to be inserted.
type NewMessage struct {
	MessageID    bus.MessageID
	ConsumerType string
	PayloadType  string
	Payload      string
	Headers      string
	InsertID     string
	// AvailableAt, when not zero, is a fixed instant; otherwise the message is
	// available Delay after the insert, on the database's clock.
	AvailableAt time.Time
	Delay       time.Duration
}

// Insert writes the rows in as few statements as possible and returns how many
// were written for each message id. A row whose insert id is pending already is
// left out. With several statements (see [Statements]) the caller provides the
// transaction.
func (s *Store) Insert(ctx context.Context, db bun.IDB, rows []NewMessage) (map[bus.MessageID]int, error) {
	// Sorted, so that batches with overlapping insert ids lock them in the same
	// order and cannot deadlock.
	slices.SortStableFunc(rows, func(a, b NewMessage) int {
		return cmp.Or(cmp.Compare(a.InsertID, b.InsertID), cmp.Compare(a.ConsumerType, b.ConsumerType))
	})
	written := make(map[bus.MessageID]int, len(rows))
	for _, chunk := range chunks(rows) {
		if err := s.insertChunk(ctx, db, chunk, written); err != nil {
			return nil, fmt.Errorf("insert messages: %w", err)
		}
	}
	return written, nil
}

// Statements tells how many statements Insert needs for the rows.
func Statements(rows []NewMessage) int { return len(chunks(rows)) }

// chunks cuts rows by number and by bytes.
func chunks(rows []NewMessage) [][]NewMessage {
	var out [][]NewMessage
	start, size := 0, 0
	for i, row := range rows {
		if i > start && (i-start >= insertRows || size+len(row.Payload) > insertBytes) {
			out = append(out, rows[start:i])
			start, size = i, 0
		}
		size += len(row.Payload)
	}
	if start < len(rows) {
		out = append(out, rows[start:])
	}
	return out
}

func (s *Store) insertChunk(ctx context.Context, db bun.IDB, rows []NewMessage, written map[bus.MessageID]int) error {
	now := bun.Safe(s.now(ctx))
	models := make([]newMessage, len(rows))
	keyed := false
	for i, row := range rows {
		keyed = keyed || row.InsertID != ""
		models[i] = newMessage{
			MessageID: row.MessageID, ConsumerType: row.ConsumerType, PayloadType: row.PayloadType,
			Payload: row.Payload, Headers: row.Headers, InsertID: row.InsertID,
			CreatedAt: now, AvailableAfter: s.available(ctx, row, now),
		}
	}
	insert := db.NewInsert().Model(&models).ModelTableExpr(s.names.messages)
	if !keyed {
		for _, row := range rows {
			written[row.MessageID]++
		}
		_, err := insert.Returning("NULL").Exec(ctx)
		return err
	}
	var ids []bus.MessageID
	err := insert.On("CONFLICT (insert_id, consumer_type) WHERE insert_id IS NOT NULL DO NOTHING").
		Returning("message_id").Scan(ctx, &ids)
	for _, id := range ids {
		written[id]++
	}
	return err
}

func (s *Store) available(ctx context.Context, row NewMessage, now bun.Safe) bun.Safe {
	switch {
	case !row.AvailableAt.IsZero():
		return bun.Safe(s.at(row.AvailableAt))
	case row.Delay > 0:
		return bun.Safe(s.after(ctx, row.Delay))
	}
	return now
}
