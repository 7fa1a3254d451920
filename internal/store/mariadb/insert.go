package mariadb

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// insertQuery writes rows as a list of values.
func (m *database) insertQuery(ctx context.Context, db bun.IDB, insert string, rows []dialect.NewMessage) *bun.RawQuery {
	const columns = ` INTO {messages} (message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after) VALUES `
	args := make([]any, 0, 7*len(rows))
	for _, row := range rows {
		available := m.Now(ctx)
		switch {
		case !row.AvailableAt.IsZero():
			available = m.At(row.AvailableAt)
		case row.Delay > 0:
			available = m.After(ctx, row.Delay)
		}
		args = append(args, row.MessageID, row.ConsumerType, row.PayloadType, row.Payload, bun.NullZero(row.Headers), bun.NullZero(row.InsertID), bun.Safe(available))
	}
	values := strings.Repeat(", (?, ?, ?, ?, ?, ?, {now}, ?)", len(rows))
	return m.Query(ctx, db, insert+columns+strings.TrimPrefix(values, ", "), args...)
}

func (m *database) Insert(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) error {
	_, err := m.insertQuery(ctx, db, "INSERT", rows).Exec(ctx)
	return err
}

// InsertKeyed writes insert ids, then the messages whose insert ids were not pending
// yet, and then which message is whose. Messages first would write every payload that
// is to be left out, and removing it again would hold up those who settle.
func (m *database) InsertKeyed(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) (ids []uuid.UUID, err error) {
	err = txn.InTx(ctx, db, func(tx bun.Tx) error {
		ids = nil
		var keys []dialect.PendingKey
		for _, row := range rows {
			if row.InsertID != "" {
				keys = append(keys, row.Key())
			}
		}
		free, err := m.reserve(ctx, tx, keys)
		if err != nil {
			return fmt.Errorf("insert ids: %w", err)
		}
		var written []dialect.NewMessage
		var reserved []reservation
		for _, row := range rows {
			if key := row.Key(); row.InsertID != "" {
				if !free[key] {
					continue
				}
				delete(free, key)
				reserved = append(reserved, reservation{PendingKey: key, Place: len(written)})
			}
			written, ids = append(written, row), append(ids, row.MessageID)
		}
		if len(written) == 0 {
			return nil
		}
		first, err := lastID(m.insertQuery(ctx, tx, "INSERT", written).Exec(ctx))
		if err != nil {
			return err
		}
		for i := range reserved {
			reserved[i].ID = first
		}
		return m.assign(ctx, tx, reserved)
	})
	return ids, err
}
