package mariadb

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// Requeue writes messages as [database.InsertKeyed] does. In which order the server numbers rows
// that it selects itself is undocumented, so their row ids are looked up.
func (m *database) Requeue(
	ctx context.Context, tx bun.Tx, rows []dialect.Poisoned, how dialect.Requeuing,
) (written []dialect.Requeued, err error) {
	var keys []dialect.PendingKey
	for _, row := range rows {
		if row.InsertID != "" {
			keys = append(keys, how.Key(row))
		}
	}
	free, err := m.reserve(ctx, tx, keys)
	if err != nil {
		return nil, fmt.Errorf("insert ids: %w", err)
	}
	rows = slices.DeleteFunc(slices.Clone(rows), func(row dialect.Poisoned) bool { return row.InsertID != "" && !free[how.Key(row)] })
	if len(rows) == 0 {
		return nil, nil
	}
	keyed, err := m.keyed(ctx, tx, rows)
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	consumer, payload, args := how.Columns()
	first, err := m.InsertID(ctx, tx, `INSERT INTO {messages}
		(message_id, payload_type, payload, consumer_type, headers, insert_id, created_at, available_after, steps, keyed, group_key)
		SELECT p.message_id, `+payload+`, `+consumer+`, `+dialect.RequeuedHeaders+`, p.insert_id, p.created_at, {now}, p.steps, p.lane IS NOT NULL, p.group_key
		FROM {ids} {poisoned} p FORCE INDEX (PRIMARY) ON p.id = j.id ORDER BY p.id`, append(args, dialect.Ordered(dialect.IDsOf(rows)))...)
	if err != nil {
		return nil, err
	}
	if err := m.requeueLanes(ctx, tx, first, keyed, how); err != nil {
		return nil, fmt.Errorf("lanes: %w", err)
	}
	// The message ids come from rows: a caller's snapshot of the table may be older and lack them.
	messages := dialect.Each(rows, func(row dialect.Poisoned) uuid.UUID { return row.MessageID })
	err = m.Query(ctx, tx, `SELECT id, message_id, insert_id, consumer_type FROM {messages} WHERE id >= ? AND message_id IN (?) ORDER BY id`,
		first, bun.List(messages)).Scan(ctx, &written)
	if err != nil {
		return nil, err
	}
	written = slices.DeleteFunc(written, func(row dialect.Requeued) bool { return row.InsertID != "" && !free[row.PendingKey] })
	var reserved []reservation
	for _, row := range written {
		if row.InsertID != "" {
			reserved = append(reserved, reservation{PendingKey: row.PendingKey, ID: row.ID})
		}
	}
	return written, m.assign(ctx, tx, reserved)
}

// keyed returns the poisoned messages, which are locked, that have keys.
func (m *database) keyed(ctx context.Context, tx bun.Tx, rows []dialect.Poisoned) (keyed []dialect.Poisoned, err error) {
	err = m.Query(ctx, tx, `SELECT p.id, p.message_id, p.consumer_type, p.order_key, p.lane, p.rank
FROM {ids} {poisoned} p FORCE INDEX (PRIMARY) ON p.id = j.id WHERE p.lane IS NOT NULL ORDER BY p.id FOR UPDATE`, dialect.Ordered(dialect.IDsOf(rows))).Scan(ctx, &keyed)
	return keyed, err
}

// requeueLanes gives requeued messages with keys, whose ids begin with first, their old places.
func (m *database) requeueLanes(ctx context.Context, tx bun.Tx, first int64, keyed []dialect.Poisoned, how dialect.Requeuing) error {
	type message struct {
		MessageID    uuid.UUID
		ConsumerType string
	}
	for part := range slices.Chunk(keyed, 500) {
		var inserted []struct {
			ID      int64
			message `bun:",extend"`
		}
		messages := dialect.Each(part, func(row dialect.Poisoned) uuid.UUID { return row.MessageID })
		err := m.Query(ctx, tx, `SELECT m.id, m.message_id, m.consumer_type FROM {messages} m LEFT JOIN {lanes} k ON k.id = m.id
WHERE m.id >= ? AND m.keyed = TRUE AND m.message_id IN (?) AND k.id IS NULL ORDER BY m.id`, first, bun.List(messages)).Scan(ctx, &inserted)
		if err != nil {
			return err
		}
		ids := make(map[message][]int64)
		for _, row := range inserted {
			ids[row.message] = append(ids[row.message], row.ID)
		}
		args := make([]any, 0, 5*len(part))
		for _, row := range part {
			of := message{row.MessageID, how.Key(row).ConsumerType}
			if len(ids[of]) == 0 {
				return fmt.Errorf("poisoned message %d was not inserted", row.ID)
			}
			args = append(args, ids[of][0], of.ConsumerType, row.Lane, row.OrderKey, row.Rank)
			ids[of] = ids[of][1:]
		}
		if err := m.Exec(ctx, tx, insertLanesSQL+dialect.Rows("(?, ?, ?, ?, ?)", len(part)), args...); err != nil {
			return err
		}
	}
	return nil
}

func (m *database) DeletePoisoned(ctx context.Context, db bun.IDB, ids []int64) (int, error) {
	return m.Changed(ctx, db, `DELETE p FROM {ids} {poisoned} p FORCE INDEX (PRIMARY) ON p.id = j.id`, dialect.Ordered(ids))
}

// SaveSchedule replaces a schedule of the same name. Later assignments see the earlier ones.
func (m *database) SaveSchedule(ctx context.Context, db bun.IDB, columns []any) (int64, error) {
	return m.InsertID(ctx, db, dialect.InsertSchedule+` ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id),
  tag = VALUES(tag), payload_type = VALUES(payload_type), payload = VALUES(payload), headers = VALUES(headers),
  available_after = CASE WHEN cron_expression = VALUES(cron_expression) AND cron_timezone = VALUES(cron_timezone)
    THEN available_after ELSE VALUES(available_after) END,
  cron_expression = VALUES(cron_expression), cron_timezone = VALUES(cron_timezone), last_error = NULL, retry_at = NULL`, columns...)
}

// LockPending locks those of the messages that are not locked, and whose insert ids are not locked
// either. It refuses a caller's transaction, which may not see the newest claims: the default is
// repeatable read.
func (m *database) LockPending(ctx context.Context, tx bun.Tx, callers bool, ids []int64) (locked []int64, err error) {
	if callers {
		return nil, fmt.Errorf("%w: on MariaDB, the caller's transaction might not see the newest claims: pass the *bun.DB",
			bus.ErrInvalidOption)
	}
	var free []int64 // claimed messages are not locked at all: their claims could not be settled
	if err := m.Query(ctx, tx, messagesSQL+` WHERE t.id NOT IN (`+heldSQL+`)`, dialect.Ordered(ids)).Scan(ctx, &free); err != nil ||
		len(free) == 0 {
		return nil, err
	}
	err = m.Query(ctx, tx, messagesSQL+` FOR UPDATE SKIP LOCKED`, dialect.Ordered(free)).Scan(ctx, &locked)
	if err != nil {
		return nil, err
	}
	met, err := m.busy(ctx, tx, insertIDsSQL, locked)
	return dialect.Without(locked, met), err
}

// ChangeLocked looks up which of the messages are in no claim, and then changes them.
func (m *database) ChangeLocked(ctx context.Context, tx bun.Tx, ids []int64, due string) (rows []dialect.ChangedRow, err error) {
	err = m.Query(ctx, tx, `SELECT m.id, m.payload_type FROM {ids} {messages} m FORCE INDEX (PRIMARY) ON m.id = j.id WHERE m.id NOT IN (`+heldSQL+`) ORDER BY m.id`,
		dialect.Ordered(ids)).
		Scan(ctx, &rows)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	free := dialect.Each(rows, func(row dialect.ChangedRow) int64 { return row.ID })
	statement := deleteSQL
	if due != "" {
		statement = `UPDATE {ids} {messages} m FORCE INDEX (PRIMARY) ON m.id = j.id SET m.available_after = ` + due
	}
	return rows, m.Run(ctx, tx, statement, free)
}

// InsertID implements [dialect.Dialect]: of several rows it returns the first id.
func (m *database) InsertID(ctx context.Context, db bun.IDB, statement string, args ...any) (int64, error) {
	res, err := m.Query(ctx, db, statement, args...).Exec(ctx)
	if err != nil {
		return 0, err
	}
	return res.LastInsertId()
}
