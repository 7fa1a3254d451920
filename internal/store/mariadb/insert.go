package mariadb

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

func (m *database) Insert(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) error {
	_, err := m.insert(ctx, db, rows)
	return err
}

// insert returns the id of the first row.
func (m *database) insert(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) (int64, error) {
	statement, values := m.InsertMessages(ctx, rows)
	return lastID(m.Query(ctx, db, statement, values...).Exec(ctx))
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
		first, err := m.insert(ctx, tx, written)
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

// Supersedes is an error: what removes a message locks that first and its insert id then, and
// who replaces one would meet it the other way round, in a transaction of the caller's.
func (m *database) Supersedes() error {
	return fmt.Errorf("to replace pending messages, or keep insert ids taken, needs PostgreSQL or SQLite: %w", errors.ErrUnsupported)
}

// Orders is an error: the index of messages has no part for those with keys or priorities.
func (m *database) Orders() error {
	return fmt.Errorf("messages by their keys or priorities need PostgreSQL or SQLite: %w", errors.ErrUnsupported)
}

func (m *database) Ranks(context.Context, bun.IDB, int) ([]int64, error) { return nil, m.Orders() }

func (m *database) ProbeLanes(context.Context, bun.IDB, []dialect.LaneLook, bool) ([]dialect.LaneState, error) {
	return nil, m.Orders()
}

func (m *database) Replace(context.Context, bun.IDB, []dialect.NewMessage) error {
	return m.Supersedes()
}

func (m *database) Withdraw(context.Context, bun.IDB, []dialect.NewMessage) ([]uuid.UUID, error) {
	return nil, m.Supersedes()
}

func (m *database) Supersede(context.Context, bun.IDB, []dialect.PendingKey) ([]dialect.Superseded, error) {
	return nil, m.Supersedes()
}
