package store

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"
)

// ReadOnly asks the server whether it is read-only, on another connection than the one that met the
// error.
func (s *Store) ReadOnly(ctx context.Context, db *bun.DB) bool {
	if s.names.ReadOnly == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var readOnly bool
	err := db.NewRaw(s.names.ReadOnly).Scan(ctx, &readOnly)
	return err != nil || readOnly
}

// lookTimeout bounds a question that any server answers at once.
const lookTimeout = 2 * time.Second

// Look returns a statement that the database answers at once if it answers at all.
func (s *Store) Look(db *bun.DB) func(context.Context) error {
	return func(ctx context.Context) error {
		var one int
		return db.NewRaw(`SELECT 1`).Scan(ctx, &one)
	}
}

// WriteFirst makes a transaction begin with a write where one writer locks the whole database. A
// transaction that reads first cannot become a writer once another one has written.
func (s *Store) WriteFirst(ctx context.Context, tx bun.Tx) error {
	if s.RowLocks() {
		return nil
	}
	if _, err := s.names.Query(ctx, tx, `UPDATE {messages} SET id = id WHERE id < 0`).Exec(ctx); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}
