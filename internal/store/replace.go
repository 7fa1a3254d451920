package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// replace replaces pending rows with the same insert ids. The new row ids make that safe: a run of
// the old message finds nothing to remove, and so cannot remove a payload that it has not seen.
func (s *OutboxStore) replace(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) (ids []uuid.UUID, err error) {
	if err := s.replaceFormer(ctx, db, rows); err != nil {
		return nil, err
	}
	for i := range rows {
		if row := &rows[i]; row.MaxPostponed > 0 && row.CreatedAt.IsZero() {
			row.Delay = min(row.Delay, row.MaxPostponed)
		}
	}
	if err := s.replaceRows(ctx, db, rows); err != nil {
		return nil, err
	}
	return dialect.Each(rows, func(row dialect.NewMessage) uuid.UUID { return row.MessageID }), nil
}

// replaceRows locks the rows in the order of their keys, as all producers do. Settling and claiming
// lock rows in another order. They skip locked rows, but PostgreSQL waits even so for a row that is
// updated a second time while it looks (heap_lock_updated_tuple of its sources does not know SKIP
// LOCKED), and so may close a cycle.
func (s *OutboxStore) replaceRows(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) error {
	replace := func(db bun.IDB) error { return s.dialect.Replace(ctx, db, rows) }
	db, err := txn.Handle(db)
	if err != nil {
		return err
	}
	if tx, isTx := db.(bun.Tx); isTx && s.RowLocks() && len(rows) > 1 {
		return txn.ThroughDeadlocks(ctx, tx, func() error { return replace(tx) })
	}
	return retry(ctx, db, replace)
}

// withoutReplaced drops rows that a later one of the batch replaces.
func withoutReplaced(rows []dialect.NewMessage) []dialect.NewMessage {
	last := make(map[dialect.PendingKey]int)
	for i, row := range rows {
		if row.Replace {
			last[row.Key()] = i
		}
	}
	if len(last) == 0 {
		return rows
	}
	kept := make([]dialect.NewMessage, 0, len(rows))
	for i, row := range rows {
		if by, ok := last[row.Key()]; !ok || row.InsertID == "" || i >= by {
			kept = append(kept, row)
		}
	}
	return kept
}

// replaceFormer replaces rows that are pending under former names of their consumers.
func (s *OutboxStore) replaceFormer(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) error {
	of := make(map[dialect.PendingKey]*dialect.NewMessage)
	var keys []dialect.PendingKey
	for i := range rows {
		for _, name := range rows[i].FormerConsumers {
			key := dialect.PendingKey{InsertID: rows[i].InsertID, ConsumerType: name}
			of[key], keys = &rows[i], append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	slices.SortFunc(keys, dialect.PendingKey.Compare)
	gone, err := s.dialect.Supersede(ctx, db, keys)
	for _, old := range gone {
		of[dialect.PendingKey{InsertID: old.InsertID, ConsumerType: old.ConsumerType}].TakePlace(old)
	}
	return err
}

// insertRarely inserts rows, and leaves out those whose insert ids stay taken since their last message
// was consumed. It looks after writing: the insert waits for a transaction that removes that message.
func (s *OutboxStore) insertRarely(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) (ids []uuid.UUID, err error) {
	ids, err = s.dialect.InsertKeyed(ctx, db, rows)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	insertIDs := slices.Compact(dialect.Each(rows, func(row dialect.NewMessage) string { return row.InsertID }))
	var taken []dialect.PendingKey
	err = s.names.Query(ctx, db, `SELECT insert_id, consumer_type FROM {recent} WHERE insert_id IN (?) AND until > {now}`, bun.List(insertIDs)).
		Scan(ctx, &taken)
	if err != nil || len(taken) == 0 {
		return ids, err
	}
	again := slices.DeleteFunc(slices.Clone(rows), func(row dialect.NewMessage) bool {
		return !slices.ContainsFunc(taken, func(k dialect.PendingKey) bool {
			return k.InsertID == row.InsertID && (k.ConsumerType == row.ConsumerType || slices.Contains(row.FormerConsumers, k.ConsumerType))
		})
	})
	if len(again) == 0 {
		return ids, nil
	}
	withdrawn, err := s.dialect.Withdraw(ctx, db, again)
	for _, id := range withdrawn {
		i := slices.Index(ids, id)
		ids = slices.Delete(ids, i, i+1)
	}
	return ids, err
}

// Remember keeps the insert ids of consumed messages taken, in the transaction that removes the
// messages.
func (s *OutboxStore) Remember(ctx context.Context, tx bun.IDB, all []dialect.Recent) error {
	if len(all) == 0 || s.dialect.Supersedes() != nil {
		return nil
	}
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b dialect.Recent) int { // so that no two can deadlock
		return cmp.Or(a.Compare(b.PendingKey), cmp.Compare(b.For, a.For))
	})
	all = slices.CompactFunc(all, func(a, b dialect.Recent) bool { return a.PendingKey == b.PendingKey })
	for part := range slices.Chunk(all, 500) {
		values := make([]any, 0, 3*len(part))
		for _, r := range part {
			values = append(values, r.InsertID, r.ConsumerType, bun.Safe(s.names.After(ctx, r.For)))
		}
		err := s.names.Exec(ctx, tx, `INSERT INTO {recent} (insert_id, consumer_type, until) VALUES `+dialect.Rows("(?, ?, ?)", len(part))+
			` ON CONFLICT (insert_id, consumer_type) DO UPDATE SET until = excluded.until`, values...)
		if err != nil {
			return fmt.Errorf("remember insert ids: %w", err)
		}
	}
	// Each call removes more than it adds, so that expired ids do not pile up.
	err := s.names.Exec(ctx, tx, `DELETE FROM {recent} WHERE (insert_id, consumer_type) IN (
  SELECT insert_id, consumer_type FROM {recent} WHERE until < {now} ORDER BY until LIMIT ? {lock free})`, 2*len(all))
	return dberr.Wrap(err, "forget insert ids")
}

// consumed returns the insert ids that stay taken after the written results.
func consumed(results []dialect.Result) (all []dialect.Recent) {
	for _, r := range results {
		if r.Recent != nil && r.Outcome == dialect.Done {
			all = append(all, *r.Recent)
		}
	}
	return all
}
