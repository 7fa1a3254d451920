package store

import (
	"context"
	"slices"

	"github.com/uptrace/bun"
)

// Matching returns the next matching messages by id: behind after, and up to upTo unless that is 0.
// It looks at as many as one part of a search has. last is the last of these, and more reports
// whether there may be others.
func (s *PendingStore) Matching(
	ctx context.Context, db bun.IDB, f PendingFilter, after, upTo int64, limit int,
) (ids []int64, last int64, more bool, err error) {
	var t terms
	t.add(true, "m.id > ?", after)
	t.add(upTo != 0, "m.id <= ?", upTo)
	chunk, _, err := first[struct {
		Greatest int64
		Looked   int
	}](ctx, s.tables, db, `SELECT COALESCE(MAX(x.id), ?) AS greatest, count(*) AS looked FROM (SELECT m.id FROM {messages} m WHERE `+t.where()+` ORDER BY m.id LIMIT ?) x`,
		append(append([]any{after}, t.args...), findChunk)...)
	if err != nil || chunk.Looked == 0 {
		return nil, after, false, err
	}
	where, values := s.pendingWhere(ctx, f)
	if f.Crashed {
		where += " AND m.crashes > 0"
	}
	ids, err = read[[]int64](
		ctx,
		s.tables,
		db,
		`SELECT m.id FROM {messages} m WHERE m.id > ? AND m.id <= ? AND `+where+` ORDER BY m.id LIMIT ?`,
		append(append([]any{after, chunk.Greatest}, values...), limit)...)
	if err != nil {
		return nil, after, false, err
	}
	if len(ids) == limit {
		return ids, ids[limit-1], true, nil
	}
	return ids, chunk.Greatest, chunk.Looked == findChunk, nil
}

// PendingOf returns those of the messages that belong to some consumers, and how many belong to
// others. No consumers means all.
func (s *PendingStore) PendingOf(ctx context.Context, db bun.IDB, ids []int64, consumers []string) (of []int64, others int, err error) {
	if len(ids) == 0 || len(consumers) == 0 {
		return ids, 0, nil
	}
	rows, err := read[[]struct {
		ID           int64
		ConsumerType string
	}](ctx, s.tables, db, `SELECT id, consumer_type FROM {messages} WHERE id IN (?) ORDER BY id`, bun.List(ids))
	for _, row := range rows {
		if slices.Contains(consumers, row.ConsumerType) {
			of = append(of, row.ID)
		} else {
			others++
		}
	}
	return of, others, err
}

// Last returns the greatest id among pending messages, or 0.
func (s *PendingStore) Last(ctx context.Context, db bun.IDB) (int64, error) {
	return read[int64](ctx, s.tables, db, `SELECT COALESCE(MAX(id), 0) FROM {messages}`)
}
