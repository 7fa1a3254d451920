package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Insert writes the rows in as few statements as possible and returns how many
// were written for each message id. A row whose insert id is pending already is
// left out. With several statements (see [Statements]) the caller provides the
// transaction.
func (s *Store) Insert(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) (map[uuid.UUID]int, error) {
	// Sorted, so that batches with overlapping insert ids lock them in the same
	// order and cannot deadlock.
	slices.SortStableFunc(rows, func(a, b dialect.NewMessage) int {
		return a.Key().Compare(b.Key())
	})
	written := make(map[uuid.UUID]int, len(rows))
	for _, chunk := range chunks(rows) {
		if err := s.insertChunk(ctx, db, chunk, written); err != nil {
			return nil, fmt.Errorf("insert messages: %w", err)
		}
	}
	return written, nil
}

// Statements tells how many statements Insert needs for the rows.
func Statements(rows []dialect.NewMessage) int { return len(chunks(rows)) }

func chunks(rows []dialect.NewMessage) [][]dialect.NewMessage {
	return dialect.Cut(rows, dialect.InsertBytes, func(row dialect.NewMessage) int { return len(row.Payload) + len(row.Headers) })
}

func (s *Store) insertChunk(ctx context.Context, db bun.IDB, rows []dialect.NewMessage, written map[uuid.UUID]int) error {
	if slices.ContainsFunc(rows, func(row dialect.NewMessage) bool { return row.InsertID != "" }) {
		ids, err := s.insertUnique(ctx, db, rows)
		for _, id := range ids {
			written[id]++
		}
		return err
	}
	for _, row := range rows {
		written[row.MessageID]++
	}
	return s.dialect.Insert(ctx, db, rows)
}

// insertUnique leaves out rows whose insert id is pending, under whatever name of
// their consumer.
func (s *Store) insertUnique(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) (ids []uuid.UUID, err error) {
	former := make(formerKeys)
	for _, row := range rows {
		former.add(row.Key(), row.FormerConsumers)
	}
	if len(former) == 0 {
		return s.dialect.InsertKeyed(ctx, db, rows)
	}
	err = txn.InTx(ctx, db, func(tx bun.Tx) error {
		taken, err := s.takenBefore(ctx, tx, former)
		if err != nil {
			return fmt.Errorf("insert ids under former names: %w", err)
		}
		left := slices.DeleteFunc(slices.Clone(rows), func(row dialect.NewMessage) bool { return row.InsertID != "" && taken[row.Key()] })
		if ids = nil; len(left) == 0 {
			return nil
		}
		ids, err = s.dialect.InsertKeyed(ctx, tx, left)
		return err
	})
	return ids, err
}

// formerKeys are keys under former names of their consumer, by the present one.
type formerKeys map[dialect.PendingKey][]dialect.PendingKey

func (f formerKeys) add(key dialect.PendingKey, names []string) {
	for _, name := range names {
		if key.InsertID != "" {
			f[key] = append(f[key], dialect.PendingKey{InsertID: key.InsertID, ConsumerType: name})
		}
	}
}

// takenBefore tells which insert ids are pending under the present or a former name of
// their consumer, where the database allows that as a producer that knows the consumer
// by that name would find out: it waits for whoever is writing the same.
func (s *Store) takenBefore(ctx context.Context, tx bun.Tx, former formerKeys) (taken map[dialect.PendingKey]bool, err error) {
	var keys []dialect.PendingKey
	for key, names := range former {
		keys = append(append(keys, key), names...)
	}
	slices.SortFunc(keys, dialect.PendingKey.Compare) // old and new names in one order, so that no two can deadlock
	free, err := s.dialect.FreeKeys(ctx, tx, slices.Compact(keys))
	if err != nil {
		return nil, err
	}
	taken = make(map[dialect.PendingKey]bool)
	for key, names := range former {
		taken[key] = !free[key] || slices.ContainsFunc(names, func(k dialect.PendingKey) bool { return !free[k] })
	}
	return taken, nil
}
