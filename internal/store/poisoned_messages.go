package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// PoisonFilter selects poisoned messages; zero fields select all.
type PoisonFilter struct {
	IDs                           []int64
	Consumer, PayloadType         string
	Fingerprint, Key              string
	MessageID                     uuid.UUID
	Header                        string // part of the headers as they are stored
	PoisonedAfter, PoisonedBefore time.Time
	Error                         string        // anywhere in the reason or the errors
	BeforeAt                      time.Time     // only messages older than this place,
	BeforeID                      int64         // newest first
	AfterID                       int64         // only greater ids
	UpToID                        int64         // only ids up to this one; zero for no end
	OlderThan                     time.Duration // by the database's clock
	Aged                          bool          // OlderThan counts, even when it is zero
}

// OfConsumers returns the rows of the given consumers, or all rows without consumers.
func OfConsumers(rows []dialect.Poisoned, consumers []string) []dialect.Poisoned {
	return slices.DeleteFunc(rows, func(row dialect.Poisoned) bool {
		return len(consumers) > 0 && !slices.Contains(consumers, row.ConsumerType)
	})
}

func (s *PoisonStore) poisonWhere(ctx context.Context, f PoisonFilter) (t terms) {
	t.add(len(f.IDs) > 0, "id IN (?)", bun.List(f.IDs))
	t.add(f.Consumer != "", "consumer_type = ?", f.Consumer)
	t.add(f.PayloadType != "", "payload_type = ?", f.PayloadType)
	t.add(f.Fingerprint == Unclassified, "fingerprint IS NULL")
	t.add(f.Fingerprint != "" && f.Fingerprint != Unclassified, "fingerprint = ?", f.Fingerprint)
	t.add(f.Key != "", "order_key = ?", f.Key)
	t.add(f.MessageID != uuid.Nil, "message_id = ?", f.MessageID)
	t.add(f.Header != "", "{instr}(headers, ?) > 0", f.Header)
	t.add(!f.PoisonedAfter.IsZero(), "poisoned_at > "+s.names.Instant(f.PoisonedAfter))
	t.add(!f.PoisonedBefore.IsZero(), "poisoned_at < "+s.names.Instant(f.PoisonedBefore))
	// As typed, case-sensitive: a reason is text, and errors are JSON.
	t.add(f.Error != "", `({instr}(reason, ?) > 0 OR {instr}(errors, ?) > 0)`, f.Error, errorlog.Quoted(f.Error))
	t.add(f.BeforeID != 0, "(poisoned_at, id) < ("+s.names.Instant(f.BeforeAt)+", ?)", f.BeforeID)
	t.add(f.AfterID != 0, "id > ?", f.AfterID)
	t.add(f.UpToID != 0, "id <= ?", f.UpToID)
	t.add(f.Aged, "poisoned_at <= "+s.names.After(ctx, -f.OlderThan))
	return t
}

// poisoned selects columns of the poisoned messages that match.
func (s *PoisonStore) poisoned(ctx context.Context, columns string, f PoisonFilter) (statement string, args []any) {
	t := s.poisonWhere(ctx, f)
	return "SELECT " + columns + " FROM {poisoned} WHERE " + t.where(), t.args
}

// List lists poisoned messages, newest first.
func (s *PoisonStore) List(ctx context.Context, db bun.IDB, f PoisonFilter, limit int) ([]dialect.Poisoned, error) {
	return s.listPoisoned(ctx, db, dialect.PoisonedColumns, f, limit)
}

// Get returns a poisoned message with its steps, if it exists.
func (s *PoisonStore) Get(ctx context.Context, db bun.IDB, id int64) (dialect.Poisoned, bool, error) {
	return first[dialect.Poisoned](
		ctx, s.tables, db, `SELECT `+dialect.PoisonedColumns+`, steps, fingerprint, `+keyBlocked+` FROM {poisoned} WHERE id = ?`, id,
	)
}

// ListBriefly is [PoisonStore.List] without the columns that may be large.
func (s *PoisonStore) ListBriefly(ctx context.Context, db bun.IDB, f PoisonFilter, limit int) ([]dialect.Poisoned, error) {
	return s.listPoisoned(ctx, db, dialect.BriefColumns, f, limit)
}

func (s *PoisonStore) listPoisoned(ctx context.Context, db bun.IDB, columns string, f PoisonFilter, limit int) ([]dialect.Poisoned, error) {
	statement, args := s.poisoned(ctx, columns+", fingerprint, "+keyBlocked, f)
	return read[[]dialect.Poisoned](ctx, s.tables, db, statement+" ORDER BY poisoned_at DESC, id DESC LIMIT ?", append(args, limit)...)
}

// Head returns a poisoned message with the first characters of its payload, if it exists.
func (s *PoisonStore) Head(ctx context.Context, db bun.IDB, id int64, characters int) (dialect.Poisoned, bool, error) {
	return first[dialect.Poisoned](ctx, s.tables, db, `SELECT `+dialect.BriefColumns+`, fingerprint, `+keyBlocked+`, headers, errors, steps,
	substr(payload, 1, ?) AS payload, `+s.bytesOf("payload")+` AS payload_bytes FROM {poisoned} WHERE id = ?`, characters, id)
}

// bytesOf returns the size of columns in bytes, as SQL.
func (s *PoisonStore) bytesOf(columns ...string) string {
	return strings.Join(
		dialect.Each(columns, func(column string) string { return "COALESCE(" + fmt.Sprintf(s.names.Bytes, column) + ", 0)" }), " + ",
	)
}

// PoisonedSize is the size in bytes of what may be large in a poisoned message.
type PoisonedSize struct {
	ID    int64 `bun:"id"`
	Bytes int   `bun:"bytes"`
}

// Sizes lists poisoned messages with their sizes, in ascending order.
func (s *PoisonStore) Sizes(ctx context.Context, db bun.IDB, f PoisonFilter, limit int) ([]PoisonedSize, error) {
	statement, args := s.poisoned(ctx, "id, "+s.bytesOf("payload", "headers", "errors")+" AS bytes", f)
	return read[[]PoisonedSize](ctx, s.tables, db, statement+" ORDER BY id LIMIT ?", append(args, limit)...)
}

// Count counts poisoned messages up to a bound.
func (s *PoisonStore) Count(ctx context.Context, db bun.IDB, f PoisonFilter, most int) (int, error) {
	statement, args := s.poisoned(ctx, "1 AS one", f)
	return read[int](ctx, s.tables, db, "SELECT count(*) FROM ("+statement+" LIMIT ?) x", append(args, most)...)
}

// nextKindSQL finds the next kind of poisoned messages behind one, at the edge of an index.
const nextKindSQL = `
SELECT * FROM (SELECT consumer_type, payload_type FROM {poisoned} WHERE consumer_type = ? AND payload_type > ? ORDER BY payload_type LIMIT 1) a
UNION ALL
SELECT * FROM (SELECT consumer_type, payload_type FROM {poisoned} WHERE consumer_type > ? ORDER BY consumer_type, payload_type LIMIT 1) b
ORDER BY 1, 2 LIMIT 1`

// Kinds lists the consumers and payload types of all poisoned messages, in ascending order. It reads two index entries for each.
func (s *PoisonStore) Kinds(ctx context.Context, db bun.IDB) (kinds []PoisonKind, err error) {
	for last, found := (PoisonKind{}), true; ; {
		last, found, err = first[PoisonKind](ctx, s.tables, db, nextKindSQL, last.ConsumerType, last.PayloadType, last.ConsumerType)
		if err != nil || !found {
			return kinds, err
		}
		kinds = append(kinds, last)
	}
}

// IDs lists the ids of poisoned messages in ascending order.
func (s *PoisonStore) IDs(ctx context.Context, db bun.IDB, f PoisonFilter, limit int) ([]int64, error) {
	statement, args := s.poisoned(ctx, "id", f)
	return read[[]int64](ctx, s.tables, db, statement+" ORDER BY id LIMIT ?", append(args, limit)...)
}

// Last returns the greatest id among the matching poisoned messages, or 0.
func (s *PoisonStore) Last(ctx context.Context, db bun.IDB, f PoisonFilter) (int64, error) {
	statement, args := s.poisoned(ctx, "COALESCE(MAX(id), 0)", f)
	return read[int64](ctx, s.tables, db, statement, args...)
}

// Delete deletes poisoned messages and returns how many. It locks them in the order of
// their ids, so that no two callers can deadlock.
func (s *PoisonStore) Delete(ctx context.Context, db bun.IDB, ids []int64) (int, error) {
	return retried(ctx, db, func(db bun.IDB) (int, error) { return s.dialect.DeletePoisoned(ctx, db, ids) })
}

// Lock locks poisoned messages for the rest of the transaction, in the order of their ids.
// Two callers cannot deadlock, and the second finds them gone. It does not read payloads, headers
// and errors.
func (s *PoisonStore) Lock(ctx context.Context, tx bun.Tx, f PoisonFilter, limit int) (rows []dialect.Poisoned, err error) {
	if err := s.WriteFirst(ctx, tx); err != nil {
		return nil, err
	}
	statement, args := s.poisoned(ctx, "id, message_id, consumer_type, payload_type, insert_id", f)
	err = s.names.Query(ctx, tx, statement+" ORDER BY id LIMIT ? {lock}", append(args, limit)...).Scan(ctx, &rows)
	return rows, err
}

// Rekey gives a locked poisoned message another key.
func (s *PoisonStore) Rekey(ctx context.Context, tx bun.Tx, id int64, key string) error {
	return s.names.Exec(ctx, tx, `UPDATE {poisoned} SET order_key = ?, lane = ? WHERE id = ?`, key, dialect.Lane(key), id)
}

// SetHeaders replaces the headers of a locked poisoned message.
func (s *PoisonStore) SetHeaders(ctx context.Context, tx bun.Tx, id int64, headers string) error {
	return s.names.Exec(ctx, tx, `UPDATE {poisoned} SET headers = ? WHERE id = ?`, bun.NullZero(headers), id)
}

// Requeue turns locked poisoned messages into pending ones with new row ids and returns those it
// did, with the new ids. A message whose insert id is already pending does not change.
func (s *PoisonStore) Requeue(
	ctx context.Context, tx bun.Tx, rows []dialect.Poisoned, how dialect.Requeuing,
) (requeued []dialect.Poisoned, err error) {
	seen := make(map[dialect.PendingKey]bool, len(rows))
	first := make([]dialect.Poisoned, 0, len(rows)) // of several with one key only the first can be pending
	for _, row := range rows {
		if row.InsertID == "" || !seen[how.Key(row)] {
			first = append(first, row)
		}
		seen[how.Key(row)] = true
	}
	first, err = s.withoutTaken(ctx, tx, first, how)
	if err != nil || len(first) == 0 {
		return nil, err
	}
	written, err := s.dialect.Requeue(ctx, tx, first, how)
	if err != nil {
		return nil, fmt.Errorf("insert: %w", err)
	}
	type message struct {
		id uuid.UUID
		dialect.PendingKey
	}
	became := make(map[message][]int64, len(written))
	for _, w := range written {
		of := message{w.MessageID, w.PendingKey}
		became[of] = append(became[of], w.ID)
	}
	for _, row := range first {
		of := message{row.MessageID, how.Key(row)}
		if ids := became[of]; len(ids) > 0 {
			row.NewID, became[of] = ids[0], ids[1:]
			requeued = append(requeued, row)
		}
	}
	if len(requeued) == 0 {
		return nil, nil
	}
	if _, err := s.Delete(ctx, tx, dialect.IDsOf(requeued)); err != nil {
		return nil, fmt.Errorf("delete: %w", err)
	}
	return requeued, nil
}

// withoutTaken leaves out messages whose insert ids are pending under a former name of their
// consumer.
func (s *PoisonStore) withoutTaken(
	ctx context.Context, tx bun.Tx, rows []dialect.Poisoned, how dialect.Requeuing,
) ([]dialect.Poisoned, error) {
	ids := dialect.Each(rows, func(row dialect.Poisoned) insertID {
		key := how.Key(row)
		return insertID{key, how.Former[key.ConsumerType]}
	})
	if !slices.ContainsFunc(ids, insertID.renamed) {
		return rows, nil
	}
	taken, err := s.outbox.taken(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(rows, func(row dialect.Poisoned) bool { return row.InsertID != "" && taken[how.Key(row)] }), nil
}
