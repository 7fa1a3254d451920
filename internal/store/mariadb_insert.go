package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// insertQuery writes rows as a list of values.
func (m *mariadb) insertQuery(ctx context.Context, db bun.IDB, insert string, rows []NewMessage) *bun.RawQuery {
	const columns = ` INTO {messages} (message_id, consumer_type, payload_type, payload, headers, insert_id, created_at, available_after) VALUES `
	args := make([]any, 0, 7*len(rows))
	for _, row := range rows {
		available := m.now(ctx)
		switch {
		case !row.AvailableAt.IsZero():
			available = m.at(row.AvailableAt)
		case row.Delay > 0:
			available = m.after(ctx, row.Delay)
		}
		args = append(args, row.MessageID, row.ConsumerType, row.PayloadType, row.Payload, bun.NullZero(row.Headers), bun.NullZero(row.InsertID), bun.Safe(available))
	}
	values := strings.Repeat(", (?, ?, ?, ?, ?, ?, {now}, ?)", len(rows))
	return m.raw(ctx, db, insert+columns+strings.TrimPrefix(values, ", "), args...)
}

func (m *mariadb) insert(ctx context.Context, db bun.IDB, rows []NewMessage) error {
	_, err := m.insertQuery(ctx, db, "INSERT", rows).Exec(ctx)
	return err
}

// insertKeyed writes insert ids, then the messages whose insert ids were not pending
// yet, and then which message is whose. Messages first would write every payload that
// is to be left out, and removing it again would hold up those who settle.
func (m *mariadb) insertKeyed(ctx context.Context, db bun.IDB, rows []NewMessage) (ids []bus.MessageID, err error) {
	err = txn.InTx(ctx, db, func(tx bun.Tx) error {
		ids = nil
		var keys []pendingKey
		for _, row := range rows {
			if row.InsertID != "" {
				keys = append(keys, row.key())
			}
		}
		free, err := m.reserve(ctx, tx, keys)
		if err != nil {
			return fmt.Errorf("insert ids: %w", err)
		}
		var written []NewMessage
		var reserved []reservation
		for _, row := range rows {
			if key := row.key(); row.InsertID != "" {
				if !free[key] {
					continue
				}
				delete(free, key)
				reserved = append(reserved, reservation{pendingKey: key, Place: len(written)})
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

// reservation is an insert id and its message: the one with this row id, or so many places
// behind it in one insert.
type reservation struct {
	pendingKey `bun:",extend"`
	ID         int64
	Place      int `bun:"-"`
}

// reserve writes those insert ids that are not pending yet, and returns which these are.
// One that somebody else is writing, or removing, is waited for. IGNORE would also cut
// text that is too long, and make another key of it: package bus refuses that before.
func (m *mariadb) reserve(ctx context.Context, tx bun.Tx, keys []pendingKey) (free map[pendingKey]bool, err error) {
	free = make(map[pendingKey]bool, len(keys))
	if len(keys) == 0 {
		return free, nil
	}
	slices.SortFunc(keys, pendingKey.compare) // all in one order, so that no two can deadlock
	keys = slices.Compact(keys)
	args := make([]any, 0, 2*len(keys))
	for _, k := range keys {
		args, free[k] = append(args, k.InsertID, k.ConsumerType), true
	}
	values := strings.TrimPrefix(strings.Repeat(", (?, ?)", len(keys)), ", ")
	n, err := affected(m.raw(ctx, tx, `INSERT IGNORE INTO {keys} (insert_id, consumer_type) VALUES `+values, args...).Exec(ctx))
	if err != nil || n == len(keys) {
		return free, err
	}
	var mine []pendingKey
	if err := m.raw(ctx, tx, mariaReserved, asJSON(keys)).Scan(ctx, &mine); err != nil {
		return nil, err
	}
	clear(free)
	for _, k := range mine {
		free[k] = true
	}
	return free, nil
}

// freeKeys only looks, and waits for nobody: locks on keys that are not there would be on
// the gaps between others, at which transactions of callers deadlock.
func (m *mariadb) freeKeys(ctx context.Context, tx bun.Tx, keys []pendingKey) (free map[pendingKey]bool, err error) {
	var pending []pendingKey
	if err := m.raw(ctx, tx, mariaPending, asJSON(keys)).Scan(ctx, &pending); err != nil {
		return nil, err
	}
	free = make(map[pendingKey]bool, len(keys))
	for _, k := range keys {
		free[k] = true
	}
	for _, k := range pending {
		delete(free, k)
	}
	return free, nil
}

// mariaListed are those of a list of insert ids that there are.
const mariaListed = `SELECT k.insert_id, k.consumer_type FROM JSON_TABLE(?, '$[*]' COLUMNS (insert_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.InsertID', consumer VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.ConsumerType')) j
STRAIGHT_JOIN {keys} k FORCE INDEX (PRIMARY) ON k.insert_id = j.insert_id AND k.consumer_type = j.consumer`

const mariaPending = mariaListed + ` WHERE k.id IS NOT NULL`

// mariaReserved finds insert ids that have no message yet: what was just written, and
// what a produce that failed has left behind when its caller committed nevertheless. The
// locks it takes, and so needs no snapshot, are those that the insert has already.
const mariaReserved = mariaListed + ` WHERE k.id IS NULL LOCK IN SHARE MODE`

// assign writes which messages the reserved insert ids have.
func (m *mariadb) assign(ctx context.Context, tx bun.Tx, reserved []reservation) error {
	if len(reserved) == 0 {
		return nil
	}
	args := make([]any, 0, 4*len(reserved))
	for _, r := range reserved {
		args = append(args, r.InsertID, r.ConsumerType, r.ID, r.Place)
	}
	values := strings.TrimPrefix(strings.Repeat(", (?, ?, ? + ? * @@auto_increment_increment)", len(reserved)), ", ")
	_, err := m.raw(ctx, tx, `INSERT INTO {keys} (insert_id, consumer_type, id) VALUES `+values+` ON DUPLICATE KEY UPDATE id = VALUES(id)`, args...).Exec(ctx)
	if err != nil {
		return fmt.Errorf("messages of insert ids: %w", err)
	}
	return nil
}
