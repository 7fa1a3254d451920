package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"
)

// sqliteFence is a write, so it takes the write lock and keeps it: a
// transactional consumer is the only writer while it runs.
const sqliteFence = `
UPDATE {messages} AS m SET attempts = m.attempts FROM json_each(?) j
WHERE m.id = j.value ->> 0 AND m.attempts = j.value ->> 1 AND m.crashes = j.value ->> 2 RETURNING id`

const sqliteClaims = `SELECT id, message_ids FROM {claims} WHERE id IN (SELECT value FROM json_each(?)) AND owner = ?`

func (s *sqlite) fence(ctx context.Context, tx bun.IDB, f Fence) (held []int64, err error) {
	var states [][3]int64
	var claims, same []int64
	for _, m := range f.Messages {
		states, claims = append(states, [3]int64{m.ID, int64(m.Attempts), int64(m.Crashes)}), append(claims, m.Claim)
	}
	if err := s.raw(ctx, tx, sqliteFence, asJSON(states)).Scan(ctx, &same); err != nil {
		return nil, err
	}
	var live []leased
	if err := s.raw(ctx, tx, sqliteClaims, asJSON(claims), f.Owner).Scan(ctx, &live); err != nil {
		return nil, err
	}
	claimed := make(map[resultKey]bool)
	for _, c := range live {
		for _, id := range c.MessageIDs {
			claimed[resultKey{c.ID, id}] = true
		}
	}
	for _, m := range f.Messages {
		if slices.Contains(same, m.ID) && claimed[resultKey{m.Claim, m.ID}] {
			held = append(held, m.ID)
		}
	}
	_, err = tx.NewRaw(`SAVEPOINT fence_of_asyncmonolith`).Exec(ctx)
	return held, err
}

// intact looks for the savepoint of the fence. Some errors, an interrupted write
// for one, make SQLite roll back the whole transaction; when a consumer hides such
// an error, statements go on and commit one by one, or in a transaction that the
// next savepoint begins.
func (s *sqlite) intact(ctx context.Context, tx bun.IDB) error {
	if _, err := tx.NewRaw(`RELEASE fence_of_asyncmonolith`).Exec(ctx); err != nil {
		return fmt.Errorf("rolled back by SQLite after a failed statement: %w", err)
	}
	return nil
}

// interrupt has nothing to end: statements run in this process, under their context.
func (s *sqlite) interrupt(context.Context, *bun.DB, Session, time.Time) error { return nil }

// sqliteExists is a write, which waits for whoever holds the write lock.
const sqliteExists = `UPDATE {messages} SET id = id WHERE id = ?`

func (s *sqlite) exists(ctx context.Context, db bun.IDB, id int64) (bool, error) {
	return affectedOne(s.raw(ctx, db, sqliteExists, id).Exec(ctx))
}

func (s *sqlite) remove(ctx context.Context, tx bun.IDB, _ Session, ids []int64) (int, error) {
	return affected(s.raw(ctx, tx, deleteMessages, bun.List(ids)).Exec(ctx))
}

// asBegun has nothing to set back.
func (s *sqlite) asBegun(Session) (string, []any) { return "", nil }
