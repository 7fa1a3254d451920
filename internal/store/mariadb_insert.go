package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
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
// yet, and then which message is whose.
func (m *mariadb) insertKeyed(ctx context.Context, db bun.IDB, rows []NewMessage) (ids []bus.MessageID, err error) {
	err = InTx(ctx, db, func(tx bun.Tx) error {
		ids = nil
		free, err := m.reserve(ctx, tx, rows)
		if err != nil {
			return err
		}
		var written []NewMessage
		var args []any
		for _, row := range rows {
			key := pendingKey{row.InsertID, row.ConsumerType}
			if row.InsertID != "" {
				if !free[key] {
					continue
				}
				delete(free, key)
				args = append(args, key.InsertID, key.ConsumerType, len(written))
			}
			written, ids = append(written, row), append(ids, row.MessageID)
		}
		if len(written) == 0 {
			return nil
		}
		first, err := lastID(m.insertQuery(ctx, tx, "INSERT", written).Exec(ctx))
		if err != nil || len(args) == 0 {
			return err
		}
		values := strings.Repeat(fmt.Sprintf(", (?, ?, %d + ? * @@auto_increment_increment)", first), len(args)/3)
		_, err = m.raw(ctx, tx, `INSERT INTO {keys} (insert_id, consumer_type, id) VALUES `+strings.TrimPrefix(values, ", ")+
			` ON DUPLICATE KEY UPDATE id = VALUES(id)`, args...).Exec(ctx)
		return err
	})
	return ids, err
}

// reserve writes insert ids that are not pending yet, and returns which these are:
// those that have no message, which nobody commits, or somebody whose produce failed.
func (m *mariadb) reserve(ctx context.Context, tx bun.Tx, rows []NewMessage) (map[pendingKey]bool, error) {
	free := make(map[pendingKey]bool)
	var args []any
	var pairs []bun.TupleValues
	for _, row := range rows {
		if k := (pendingKey{row.InsertID, row.ConsumerType}); row.InsertID != "" && !free[k] {
			free[k] = true
			args, pairs = append(args, k.InsertID, k.ConsumerType), append(pairs, bun.Tuple([]string{k.InsertID, k.ConsumerType}))
		}
	}
	values := strings.Repeat(", (?, ?)", len(pairs))
	n, err := affected(m.raw(ctx, tx, `INSERT IGNORE INTO {keys} (insert_id, consumer_type) VALUES `+strings.TrimPrefix(values, ", "), args...).Exec(ctx))
	if err != nil || n == len(pairs) {
		return free, err
	}
	clear(free)
	var mine []pendingKey
	if err := m.raw(ctx, tx, `SELECT insert_id, consumer_type FROM {keys} FORCE INDEX (PRIMARY) WHERE id IS NULL AND (insert_id, consumer_type) IN (?)`, bun.List(pairs)).Scan(ctx, &mine); err != nil {
		return nil, err
	}
	for _, k := range mine {
		free[k] = true
	}
	return free, nil
}

// mariaKey is the insert id of a message.
type mariaKey struct {
	pendingKey
	id int64
}

// refused is a message whose insert id was pending already.
type refused struct {
	ID        int64
	MessageID bus.MessageID
}

// mariaRefused finds messages without the entry that their insert id ought to have.
// What others have inserted since has it: the two are committed together.
const mariaRefused = `SELECT m.id, m.message_id FROM {messages} m LEFT JOIN {keys} k ON k.id = m.id
WHERE m.id >= ? AND m.message_id IN (?) AND m.insert_id IS NOT NULL AND k.id IS NULL`

// mariaTakeBack deletes messages that have no entry. To look for one would lock the
// gap where it could be, if the transaction is the caller's, and repeatable read.
const mariaTakeBack = `/*M! SET STATEMENT foreign_key_checks = 0 FOR */ ` + mariaDelete

// enter writes the insert ids of messages that this transaction has inserted, and
// deletes those messages that come too late. The ids of the messages are first and
// above. An insert id that somebody else is writing, or removing, is waited for.
func (m *mariadb) enter(ctx context.Context, tx bun.Tx, keys []mariaKey, first int64, messages []bus.MessageID) (late []refused, err error) {
	args := make([]any, 0, 3*len(keys))
	for _, k := range keys {
		args = append(args, k.InsertID, k.ConsumerType, k.id)
	}
	values := strings.Repeat(", (?, ?, ?)", len(keys))
	n, err := affected(m.raw(ctx, tx, `INSERT IGNORE INTO {keys} (insert_id, consumer_type, id) VALUES `+strings.TrimPrefix(values, ", "), args...).Exec(ctx))
	if err != nil || n == len(keys) {
		return nil, err
	}
	messages = slices.CompactFunc(slices.SortedFunc(slices.Values(messages), compareIDs), func(a, b bus.MessageID) bool { return a == b })
	if err := m.raw(ctx, tx, mariaRefused, first, bun.List(messages)).Scan(ctx, &late); err != nil {
		return nil, err
	}
	ids := make([]int64, len(late))
	for i, r := range late {
		ids[i] = r.ID
	}
	if err := m.run(ctx, tx, mariaTakeBack, ids); err != nil {
		return nil, fmt.Errorf("take back: %w", err)
	}
	return late, nil
}

func compareIDs(a, b bus.MessageID) int { return slices.Compare(a[:], b[:]) }
