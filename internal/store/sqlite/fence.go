package sqlite

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// fenceSQL is a write, so it takes the write lock and keeps it: a
// transactional consumer is the only writer while it runs.
const fenceSQL = `
UPDATE {messages} AS m SET attempts = m.attempts FROM json_each(?) j
WHERE m.id = j.value ->> 0 AND m.attempts = j.value ->> 1 AND m.crashes = j.value ->> 2 RETURNING id`

func (s *database) Fence(ctx context.Context, tx bun.IDB, f dialect.Fence) (held []int64, err error) {
	var states [][3]int64
	var claims, same []int64
	for _, m := range f.Messages {
		states, claims = append(states, [3]int64{m.ID, int64(m.Attempts), int64(m.Crashes)}), append(claims, m.Claim)
	}
	if err := s.Query(ctx, tx, fenceSQL, dialect.AsJSON(states)).Scan(ctx, &same); err != nil {
		return nil, err
	}
	live, err := s.Live(ctx, tx, f.Owner, claims, false)
	if err != nil {
		return nil, err
	}
	claimed := make(map[dialect.ResultKey]bool)
	for _, c := range live {
		for _, id := range c.MessageIDs {
			claimed[dialect.ResultKey{Claim: c.ID, Message: id}] = true
		}
	}
	for _, m := range f.Messages {
		if slices.Contains(same, m.ID) && claimed[dialect.ResultKey{Claim: m.Claim, Message: m.ID}] {
			held = append(held, m.ID)
		}
	}
	return held, s.Exec(ctx, tx, fencePoint)
}

const fencePoint = `SAVEPOINT fence_of_asyncmonolith`

// Intact looks for the savepoint of the fence. Some errors, such as an interrupted write, make
// SQLite roll back the whole transaction. If a consumer hides such an error, its next statements
// commit one by one, or in a transaction that the next savepoint begins.
func (s *database) Intact(ctx context.Context, tx bun.IDB) error {
	if _, err := tx.NewRaw(`RELEASE fence_of_asyncmonolith`).Exec(ctx); err != nil {
		return fmt.Errorf("the transaction ended early, by the function or by SQLite after a failed statement: %w", err)
	}
	return nil
}

// Interrupt has nothing to end: statements run in this process, under their context.
func (s *database) Interrupt(context.Context, *bun.DB, dialect.Session, time.Time) error { return nil }
