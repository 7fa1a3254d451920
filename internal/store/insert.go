package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

const (
	insertRows  = 1000    // rows in one statement
	insertBytes = 4 << 20 // bytes of payloads and headers in one statement
)

// Insert writes the rows in as few statements as possible and returns how many
// were written for each message id. A row whose insert id is pending already is
// left out. With several statements (see [Statements]) the caller provides the
// transaction.
func (s *Store) Insert(ctx context.Context, db bun.IDB, rows []NewMessage) (map[bus.MessageID]int, error) {
	// Sorted, so that batches with overlapping insert ids lock them in the same
	// order and cannot deadlock.
	slices.SortStableFunc(rows, func(a, b NewMessage) int {
		return a.key().compare(b.key())
	})
	written := make(map[bus.MessageID]int, len(rows))
	for _, chunk := range chunks(rows) {
		if err := s.insertChunk(ctx, db, chunk, written); err != nil {
			return nil, fmt.Errorf("insert messages: %w", err)
		}
	}
	return written, nil
}

// Statements tells how many statements Insert needs for the rows.
func Statements(rows []NewMessage) int { return len(chunks(rows)) }

func chunks(rows []NewMessage) [][]NewMessage {
	return cut(rows, insertBytes, func(row NewMessage) int { return len(row.Payload) + len(row.Headers) })
}

func (s *Store) insertChunk(ctx context.Context, db bun.IDB, rows []NewMessage, written map[bus.MessageID]int) error {
	if slices.ContainsFunc(rows, func(row NewMessage) bool { return row.InsertID != "" }) {
		ids, err := s.insertUnique(ctx, db, rows)
		for _, id := range ids {
			written[id]++
		}
		return err
	}
	for _, row := range rows {
		written[row.MessageID]++
	}
	return s.dialect.insert(ctx, db, rows)
}

// insertUnique leaves out rows whose insert id is pending, under whatever name of
// their consumer.
func (s *Store) insertUnique(ctx context.Context, db bun.IDB, rows []NewMessage) (ids []bus.MessageID, err error) {
	former := make(map[pendingKey][]pendingKey)
	for _, row := range rows {
		for _, name := range row.FormerConsumers {
			if row.InsertID != "" {
				former[row.key()] = append(former[row.key()], pendingKey{row.InsertID, name})
			}
		}
	}
	if len(former) == 0 {
		return s.dialect.insertKeyed(ctx, db, rows)
	}
	err = txn.InTx(ctx, db, func(tx bun.Tx) error {
		taken, err := s.takenBefore(ctx, tx, former)
		if err != nil {
			return fmt.Errorf("insert ids under former names: %w", err)
		}
		left := slices.DeleteFunc(slices.Clone(rows), func(row NewMessage) bool { return row.InsertID != "" && taken[row.key()] })
		if ids = nil; len(left) == 0 {
			return nil
		}
		ids, err = s.dialect.insertKeyed(ctx, tx, left)
		return err
	})
	return ids, err
}

// takenBefore tells which insert ids are pending under the present or a former name of
// their consumer, where the database allows that as a producer that knows the consumer
// by that name would find out: it waits for whoever is writing the same.
func (s *Store) takenBefore(ctx context.Context, tx bun.Tx, former map[pendingKey][]pendingKey) (taken map[pendingKey]bool, err error) {
	var keys []pendingKey
	for key, names := range former {
		keys = append(append(keys, key), names...)
	}
	slices.SortFunc(keys, pendingKey.compare) // old and new names in one order, so that no two can deadlock
	free, err := s.dialect.freeKeys(ctx, tx, slices.Compact(keys))
	if err != nil {
		return nil, err
	}
	taken = make(map[pendingKey]bool)
	for key, names := range former {
		taken[key] = !free[key] || slices.ContainsFunc(names, func(k pendingKey) bool { return !free[k] })
	}
	return taken, nil
}
