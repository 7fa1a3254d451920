package store

import (
	"context"
	"maps"
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

// insertKeyed writes and then looks what it has written, in one transaction, since
// a processor may be quick. IGNORE would also cut text that is too long: package
// bus refuses that before.
func (m *mariadb) insertKeyed(ctx context.Context, db bun.IDB, rows []NewMessage) (ids []bus.MessageID, err error) {
	err = InTx(ctx, db, func(tx bun.Tx) error {
		ids = nil
		res, err := m.insertQuery(ctx, tx, "INSERT IGNORE", rows).Exec(ctx)
		n, err := affected(res, err)
		if err != nil || n == 0 {
			return err
		}
		produced := make(map[bus.MessageID]struct{})
		for _, row := range rows {
			if ids = append(ids, row.MessageID); n < len(rows) {
				produced[row.MessageID] = struct{}{}
			}
		}
		if n == len(rows) {
			return nil
		}
		ids = nil
		first, err := res.LastInsertId()
		if err != nil {
			return err
		}
		written := slices.SortedFunc(maps.Keys(produced), func(a, b bus.MessageID) int { return slices.Compare(a[:], b[:]) })
		return m.raw(ctx, tx, `SELECT message_id FROM {messages} WHERE id >= ? AND message_id IN (?)`, first, bun.List(written)).Scan(ctx, &ids)
	})
	return ids, err
}
