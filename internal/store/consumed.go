package store

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// Keep writes consumed messages, in the transaction that removes them.
func (s *ConsumedStore) Keep(ctx context.Context, tx bun.IDB, all []*dialect.Kept) error {
	return dialect.Keep(ctx, s.names, tx, all)
}

// Forget deletes consumed messages whose time is over, the oldest first and at most limit. It returns
// how many.
func (s *ConsumedStore) Forget(ctx context.Context, db bun.IDB, limit int) (int, error) {
	return retried(ctx, db, func(db bun.IDB) (int, error) {
		return s.dialect.Trim(ctx, db, dialect.Trimmed{
			Table: "{consumed}", Key: "id, message_id", Where: "expires_at < " + s.names.Now(ctx), OldestBy: "expires_at",
			Index: "{prefix}consumed_messages_expires",
		}, limit)
	})
}

// ConsumedFilter selects consumed messages; zero fields select all.
type ConsumedFilter struct {
	IDs                           []int64
	MessageID                     uuid.UUID
	Consumer, PayloadType, Key    string
	Outcome, Version              string
	FinishedAfter, FinishedBefore time.Time
	Headers                       []string  // parts of headers as they are stored
	BeforeAt                      time.Time // only messages older than this place,
	BeforeID                      int64     // newest first
}

// ConsumedPage is a part of a list of consumed messages.
type ConsumedPage struct {
	Rows []dialect.Consumed
	// More is true if there may be more, older than the place of At and ID.
	More bool
	At   time.Time
	ID   int64
}

// indexed returns the conditions for which there is an index, and others the rest.
func (s *ConsumedStore) indexed(f ConsumedFilter) (indexed, others terms) {
	indexed.add(f.IDs != nil, "id IN (?)", bun.List(f.IDs))
	indexed.add(f.MessageID != uuid.Nil, "message_id = ?", f.MessageID)
	indexed.add(f.Consumer != "", "consumer_type = ?", f.Consumer)
	indexed.add(f.Key != "", "order_key = ?", f.Key)
	indexed.add(!f.FinishedAfter.IsZero(), "finished_at > "+s.names.Instant(f.FinishedAfter))
	indexed.add(!f.FinishedBefore.IsZero(), "finished_at < "+s.names.Instant(f.FinishedBefore))
	indexed.add(f.BeforeID != 0, "(finished_at, id) < ("+s.names.Instant(f.BeforeAt)+", ?)", f.BeforeID)
	others.add(f.PayloadType != "", "payload_type = ?", f.PayloadType)
	others.add(f.Outcome != "", "outcome = ?", f.Outcome)
	others.add(f.Version != "", "version = ?", f.Version)
	for _, part := range f.Headers {
		others.add(true, "{instr}(headers, ?) > 0", part)
	}
	return indexed, others
}

const newestFirst = ` ORDER BY finished_at DESC, id DESC LIMIT ?`

// List lists up to size consumed messages, newest first. It examines at most most of them; 0 examines
// all. With full it reads payloads and headers.
func (s *ConsumedStore) List(ctx context.Context, db bun.IDB, f ConsumedFilter, size, most int, full bool) (page ConsumedPage, err error) {
	columns := dialect.ConsumedColumns
	if full {
		columns += ", payload, headers"
	}
	where, others := s.indexed(f)
	scanned := most > 0 && len(others.texts) > 0
	from, args := "{consumed}", []any(nil)
	switch {
	case scanned:
		from, args = "(SELECT * FROM {consumed} WHERE "+where.where()+newestFirst+") x", append(where.args, most)
		where = others
	default:
		where.texts, where.args = append(where.texts, others.texts...), append(where.args, others.args...)
	}
	args = append(append(args, where.args...), size+1)
	page.Rows, err = read[[]dialect.Consumed](ctx, s.tables, db, "SELECT "+columns+" FROM "+from+" WHERE "+where.where()+newestFirst, args...)
	switch {
	case err != nil:
		return ConsumedPage{}, err
	case len(page.Rows) > size:
		page.Rows, page.More = page.Rows[:size], true
		page.At, page.ID = page.Rows[size-1].FinishedAt.Time, page.Rows[size-1].ID
	case scanned:
		err = s.end(ctx, db, f, most, &page)
	}
	return page, err
}

// end finds out where the examined messages end.
func (s *ConsumedStore) end(ctx context.Context, db bun.IDB, f ConsumedFilter, most int, page *ConsumedPage) error {
	where, _ := s.indexed(f)
	last, found, err := first[dialect.Consumed](ctx, s.tables, db,
		"SELECT id, finished_at FROM {consumed} WHERE "+where.where()+newestFirst+" OFFSET ?", append(where.args, 1, most-1)...)
	if err == nil && found {
		page.More, page.At, page.ID = true, last.FinishedAt.Time, last.ID
	}
	return err
}

// LockForRepeat reads consumed messages by id with payloads and headers, and locks them until the end of
// the transaction. Of several with one id it returns the newest.
func (s *ConsumedStore) LockForRepeat(ctx context.Context, tx bun.Tx, ids []int64) (rows []dialect.Consumed, err error) {
	if err := s.WriteFirst(ctx, tx); err != nil {
		return nil, err
	}
	const statement = `SELECT ` + dialect.ConsumedColumns + `, payload, headers FROM {consumed} WHERE id IN (?)
ORDER BY id, finished_at DESC {lock}`
	err = s.names.Query(ctx, tx, statement, bun.List(ids)).Scan(ctx, &rows)
	return slices.CompactFunc(rows, func(a, b dialect.Consumed) bool { return a.ID == b.ID }), err
}

// Repeat inserts consumed messages again for their consumers, with new message ids and a header with the
// old ones. Rows need their payloads.
func (s *ConsumedStore) Repeat(
	ctx context.Context, tx bun.Tx, rows []dialect.Consumed, newID func() uuid.UUID,
) (ids []uuid.UUID, err error) {
	var messages []dialect.NewMessage
	for _, row := range rows {
		headers, err := EncodeHeaders(repeatedHeaders(row), Extras{})
		if err != nil {
			return nil, err
		}
		ids = append(ids, newID())
		messages = append(messages, dialect.NewMessage{
			MessageID: ids[len(ids)-1], ConsumerType: row.ConsumerType, PayloadType: row.PayloadType, Payload: string(row.Payload),
			Headers: headers, OrderKey: row.OrderKey, AnyOrder: row.AnyOrder,
		})
	}
	_, err = s.outbox.Insert(ctx, tx, messages)
	return ids, err
}

// repeatedHeaders are the headers of a consumed message for its repetition. It has no deadline, which would
// be over, no insert id, and no list of consumers, which would get it, too.
func repeatedHeaders(row dialect.Consumed) map[string]string {
	headers := Headers(row.Headers)
	if headers == nil {
		headers = make(map[string]string, 1)
	}
	for _, name := range []string{dialect.DeliverByHeader, dialect.UniqueForHeader, dialect.ConsumersHeader} {
		delete(headers, name)
	}
	headers[dialect.RepeatsHeader] = row.MessageID.String()
	return headers
}
