package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// replaceTries is how often a row is written anew that has met another with its insert id.
const replaceTries = 8

var errContended = errors.New("others write the same insert id all the time")

// replace has rows take the place of those that are pending with their insert ids. A new row
// is what makes that safe: who runs the old one finds nothing to remove, and so cannot remove
// a payload that it has not seen.
func (s *Store) replace(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) (ids []uuid.UUID, err error) {
	left := latest(rows)
	first := make(map[dialect.PendingKey]dialect.Superseded)
	for range replaceTries {
		if err := s.supersede(ctx, db, left, first); err != nil {
			return nil, err
		}
		placed := slices.Clone(left)
		for i := range placed {
			if old, ok := first[placed[i].Key()]; ok {
				place(&placed[i], old)
			} else if placed[i].MaxPostponed > 0 {
				placed[i].Delay = min(placed[i].Delay, placed[i].MaxPostponed)
			}
		}
		written, err := insertApart(placed, func(rows []dialect.NewMessage) ([]uuid.UUID, error) { return s.dialect.InsertKeyed(ctx, db, rows) })
		if err != nil {
			return nil, err
		}
		done := make(map[dialect.PendingKey]bool, len(written))
		for _, row := range written {
			ids, done[row.Key()] = append(ids, row.MessageID), true
		}
		left = slices.DeleteFunc(left, func(row dialect.NewMessage) bool { return done[row.Key()] })
		if len(left) == 0 {
			return ids, nil
		}
	}
	return nil, fmt.Errorf("insert id %q: %w", left[0].InsertID, errContended)
}

// insertApart inserts rows of a message apart from each other, to know which were written,
// and those that have another's place apart from those that do not.
func insertApart(rows []dialect.NewMessage, insert func([]dialect.NewMessage) ([]uuid.UUID, error)) (written []dialect.NewMessage, err error) {
	for len(rows) > 0 {
		seen := make(map[uuid.UUID]bool)
		n := 0
		for n < len(rows) && !seen[rows[n].MessageID] && rows[n].CreatedAt.IsZero() == rows[0].CreatedAt.IsZero() {
			seen[rows[n].MessageID] = true
			n++
		}
		ids, err := insert(rows[:n])
		if err != nil {
			return nil, err
		}
		for _, row := range rows[:n] {
			if slices.Contains(ids, row.MessageID) {
				written = append(written, row)
			}
		}
		rows = rows[n:]
	}
	return written, nil
}

// latest drops rows that a later one of the batch replaces. The rows are sorted by their keys.
func latest(rows []dialect.NewMessage) (last []dialect.NewMessage) {
	for i, row := range rows {
		if i+1 == len(rows) || rows[i+1].Key() != row.Key() {
			last = append(last, row)
		}
	}
	return last
}

// supersede deletes what is pending with the keys of the rows, also under former names of
// their consumers, and keeps what was there, by the present name.
func (s *Store) supersede(ctx context.Context, db bun.IDB, rows []dialect.NewMessage, first map[dialect.PendingKey]dialect.Superseded) error {
	present := make(map[dialect.PendingKey]dialect.PendingKey, len(rows))
	var keys []dialect.PendingKey
	for _, row := range rows {
		for _, name := range append([]string{row.ConsumerType}, row.FormerConsumers...) {
			key := dialect.PendingKey{InsertID: row.InsertID, ConsumerType: name}
			present[key], keys = row.Key(), append(keys, key)
		}
	}
	slices.SortFunc(keys, dialect.PendingKey.Compare)
	gone, err := s.dialect.Supersede(ctx, db, keys)
	if err != nil {
		return err
	}
	for _, old := range gone {
		first[present[dialect.PendingKey{InsertID: old.InsertID, ConsumerType: old.ConsumerType}]] = old
	}
	return nil
}

// place gives a row the place of another: when that was created, and due no sooner, but
// within the bound.
func place(row *dialect.NewMessage, old dialect.Superseded) {
	row.CreatedAt = old.CreatedAt.Time
	due := row.AvailableAt
	if due.IsZero() {
		due = old.Now.Add(row.Delay)
	}
	if old.AvailableAfter.After(due) {
		due = old.AvailableAfter.Time
	}
	if bound := row.CreatedAt.Add(row.MaxPostponed); row.MaxPostponed > 0 && due.After(bound) {
		due = bound
	}
	row.AvailableAt, row.Delay = due, 0
}

// insertRarely leaves out rows, too, whose insert ids are still taken since their last
// message was consumed. It looks once they are written: who consumes that message removes it,
// and so is waited for.
func (s *Store) insertRarely(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) (ids []uuid.UUID, err error) {
	written, err := insertApart(rows, func(rows []dialect.NewMessage) ([]uuid.UUID, error) { return s.insertUnique(ctx, db, rows) })
	if err != nil || len(written) == 0 {
		return nil, err
	}
	insertIDs := slices.Compact(dialect.Each(written, func(row dialect.NewMessage) string { return row.InsertID }))
	var taken []dialect.PendingKey
	err = s.names.Query(ctx, db, `SELECT insert_id, consumer_type FROM {recent} WHERE insert_id IN (?) AND until > {now}`, bun.List(insertIDs)).Scan(ctx, &taken)
	if err != nil {
		return nil, err
	}
	var again []dialect.PendingKey
	for _, row := range written {
		if slices.ContainsFunc(taken, func(k dialect.PendingKey) bool {
			return k.InsertID == row.InsertID && (k.ConsumerType == row.ConsumerType || slices.Contains(row.FormerConsumers, k.ConsumerType))
		}) {
			again = append(again, row.Key())
		} else {
			ids = append(ids, row.MessageID)
		}
	}
	if len(again) > 0 {
		_, err = s.dialect.Supersede(ctx, db, again)
	}
	return ids, err
}

// Remember has the insert ids of consumed messages stay taken. It is part of the transaction
// in which the messages are removed.
func (s *Store) Remember(ctx context.Context, tx bun.IDB, all []dialect.Recent) error {
	slices.SortFunc(all, func(a, b dialect.Recent) int { // so that no two can deadlock
		return cmp.Or(a.Compare(b.PendingKey), cmp.Compare(b.For, a.For))
	})
	all = slices.CompactFunc(all, func(a, b dialect.Recent) bool { return a.PendingKey == b.PendingKey })
	for part := range slices.Chunk(all, 500) {
		values := make([]any, 0, 3*len(part))
		for _, r := range part {
			values = append(values, r.InsertID, r.ConsumerType, bun.Safe(s.names.After(ctx, r.For)))
		}
		_, err := s.names.Query(ctx, tx, `INSERT INTO {recent} (insert_id, consumer_type, until) VALUES `+dialect.Rows("(?, ?, ?)", len(part))+
			` ON CONFLICT (insert_id, consumer_type) DO UPDATE SET until = excluded.until`, values...).Exec(ctx)
		if err != nil {
			return fmt.Errorf("remember insert ids: %w", err)
		}
	}
	// Each call removes more than it adds, so that what is over does not pile up.
	_, err := s.names.Query(ctx, tx, `DELETE FROM {recent} WHERE (insert_id, consumer_type) IN (
  SELECT insert_id, consumer_type FROM {recent} WHERE until < {now} ORDER BY until LIMIT ? {lock free})`, 2*len(all)).Exec(ctx)
	if err != nil {
		return fmt.Errorf("forget insert ids: %w", err)
	}
	return nil
}

// consumed lists the insert ids that are to stay taken.
func consumed(results []dialect.Result) (all []dialect.Recent) {
	for _, r := range results {
		if r.Recent != nil && r.Outcome == dialect.Done {
			all = append(all, *r.Recent)
		}
	}
	return all
}
