package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Insert writes the rows in as few statements as possible and returns how many were written for
// each message id. It leaves out rows whose insert id is already pending. For several statements
// (see [Statements]) the caller provides the transaction.
func (s *OutboxStore) Insert(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) (written map[uuid.UUID]int, err error) {
	rows = withoutReplaced(rows)
	if err := s.rank(ctx, db, rows); err != nil {
		return nil, err
	}
	// Sorted, so that batches with overlapping insert ids lock them in the same
	// order and cannot deadlock.
	if s.RowLocks() || !ranked(rows) {
		slices.SortStableFunc(rows, func(a, b dialect.NewMessage) int {
			return a.Key().Compare(b.Key())
		})
	}
	if err := s.share(ctx, db, rows); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(rows, func(row dialect.NewMessage) bool { return insertIDOf(row).renamed() }) {
		return s.insertChunks(ctx, db, rows)
	}
	err = txn.InTx(ctx, db, func(tx bun.Tx) error {
		taken, err := s.taken(ctx, tx, dialect.Each(rows, insertIDOf))
		if err != nil {
			return err
		}
		left := slices.DeleteFunc(slices.Clone(rows), func(row dialect.NewMessage) bool { return taken[insertIDOf(row).PendingKey] })
		written, err = s.insertChunks(ctx, tx, left)
		return err
	})
	return written, err
}

func (s *OutboxStore) insertChunks(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) (map[uuid.UUID]int, error) {
	written := make(map[uuid.UUID]int, len(rows))
	for _, chunk := range chunks(rows) {
		if err := s.insertChunk(ctx, db, chunk, written); err != nil {
			return nil, fmt.Errorf("insert messages: %w", err)
		}
	}
	return written, nil
}

// rank reserves places for the rows in the order of the call, if sorting could change the order of
// a key.
func (s *OutboxStore) rank(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) error {
	if !ranked(rows) {
		return nil
	}
	ranks, err := s.dialect.Ranks(ctx, db, len(rows))
	if err != nil {
		return fmt.Errorf("reserve places: %w", err)
	}
	for i := range ranks {
		rows[i].Rank = ranks[i]
	}
	return nil
}

// ranked reports whether sorting by insert ids could change the order of a key.
func ranked(rows []dialect.NewMessage) bool {
	return len(rows) > 1 &&
		slices.ContainsFunc(rows, func(row dialect.NewMessage) bool { return row.OrderKey != "" && !row.AnyOrder && row.InsertID != "" })
}

// Statements returns how many statements Insert needs for the rows, at least.
func Statements(rows []dialect.NewMessage) int {
	n := len(chunks(rows))
	if n == 1 && (orders(rows[0]) || ranked(rows) || rows[0].GroupKey != "") {
		n++
	}
	return n
}

// orders reports whether an insert id asks for more than not to be pending twice.
func orders(row dialect.NewMessage) bool { return row.Replace || row.UniqueFor > 0 }

// chunks splits rows for statements: each has not too many bytes and rows of one kind.
func chunks(rows []dialect.NewMessage) (all [][]dialect.NewMessage) {
	for _, chunk := range dialect.Cut(rows, dialect.InsertBytes,
		func(row dialect.NewMessage) int { return len(row.Payload) + len(row.Headers) }) {
		for len(chunk) > 0 {
			n := 1
			for n < len(chunk) && kindOf(chunk[n]) == kindOf(chunk[0]) {
				n++
			}
			all, chunk = append(all, chunk[:n]), chunk[n:]
		}
	}
	return all
}

// kind is what rows of one statement have in common.
type kind struct {
	replace, keyed, anyOrder, prior, rare, grouped bool
	postponed                                      time.Duration
}

func kindOf(row dialect.NewMessage) kind {
	return kind{
		replace: row.Replace, keyed: row.OrderKey != "", anyOrder: row.AnyOrder, prior: row.Priority > 0, rare: row.UniqueFor > 0,
		grouped: row.GroupKey != "", postponed: row.MaxPostponed,
	}
}

// supports returns an errors.ErrUnsupported for a row that the database cannot have.
func (s *OutboxStore) supports(row dialect.NewMessage) (err error) {
	if orders(row) {
		err = s.dialect.Supersedes()
	}
	if err == nil && row.AnyOrder {
		err = s.dialect.AnyOrder()
	}
	if err == nil && row.Priority > 0 {
		err = s.dialect.Priorities()
	}
	return err
}

func (s *OutboxStore) insertChunk(ctx context.Context, db bun.IDB, rows []dialect.NewMessage, written map[uuid.UUID]int) error {
	if err := s.supports(rows[0]); err != nil {
		return err
	}
	insert := s.dialect.InsertKeyed
	switch {
	case rows[0].Replace:
		insert = s.replace
	case rows[0].UniqueFor > 0:
		insert = s.insertRarely
	case !slices.ContainsFunc(rows, func(row dialect.NewMessage) bool { return row.InsertID != "" }):
		for _, row := range rows {
			written[row.MessageID]++
		}
		return s.dialect.Insert(ctx, db, rows)
	}
	ids, err := insert(ctx, db, rows)
	for _, id := range ids {
		written[id]++
	}
	return err
}

// insertID is an insert id with the names of its consumer.
type insertID struct {
	dialect.PendingKey
	former []string // former names of the consumer
}

// insertIDOf returns the insert id of a row that must not be pending twice.
func insertIDOf(row dialect.NewMessage) insertID {
	if row.Replace || row.InsertID == "" {
		return insertID{}
	}
	return insertID{row.Key(), row.FormerConsumers}
}

func (i insertID) renamed() bool { return i.InsertID != "" && len(i.former) > 0 }

// formerKeys returns the keys of an insert id under the former names of its consumer.
func (i insertID) formerKeys() []dialect.PendingKey {
	return dialect.Each(i.former, func(name string) dialect.PendingKey {
		return dialect.PendingKey{InsertID: i.InsertID, ConsumerType: name}
	})
}

// taken returns which insert ids of renamed consumers are pending under the present or a former name.
// Where the database allows it, it waits for other writers of the same id, as a producer that uses that
// name would. It does so for all insert ids of a call that do not replace, in the order in which
// producers write theirs, so that two such calls cannot deadlock.
func (s *OutboxStore) taken(ctx context.Context, tx bun.Tx, ids []insertID) (taken map[dialect.PendingKey]bool, err error) {
	var keys []dialect.PendingKey
	for _, id := range ids {
		if id.InsertID != "" {
			keys = append(append(keys, id.PendingKey), id.formerKeys()...)
		}
	}
	slices.SortFunc(keys, dialect.PendingKey.Compare)
	free, err := s.dialect.FreeKeys(ctx, tx, slices.Compact(keys))
	if err != nil {
		return nil, fmt.Errorf("insert ids under former names: %w", err)
	}
	taken = make(map[dialect.PendingKey]bool)
	for _, id := range ids {
		if id.renamed() {
			taken[id.PendingKey] = !free[id.PendingKey] ||
				slices.ContainsFunc(id.formerKeys(), func(k dialect.PendingKey) bool { return !free[k] })
		}
	}
	return taken, nil
}

// RowOf returns the row of a message for one of its consumers. All rows of messages are made here.
func RowOf(m *bus.Message, c bus.Consumer, headers string) dialect.NewMessage {
	row := dialect.NewMessage{
		MessageID: m.ID, ConsumerType: c.Name(), PayloadType: m.PayloadType, Payload: string(m.Payload), Headers: headers,
		InsertID: m.InsertID, AvailableAt: dialect.Due(m.AvailableAt), Delay: m.Delay, Replace: m.Replace, MaxPostponed: m.DebounceMax,
		UniqueFor: m.UniqueFor, GroupKey: m.Group,
	}
	if m.Event != nil {
		row.Payload = "" // it is read from the event
	}
	config := c.Config()
	if access.Keyed(&config) {
		row.OrderKey, row.AnyOrder = m.OrderingKey, config.Ordered == 0
	}
	if config.Aging > 0 {
		row.Priority = int(m.Priority)
	}
	if m.InsertID != "" {
		row.FormerConsumers = config.Aliases
	}
	return row
}
