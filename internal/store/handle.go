package store

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"
)

// ReadOnly asks the server, on another connection than the one that met such an error,
// whether it takes no writes from anybody.
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

// Look asks the database something that it answers at once if it answers at all.
func (s *Store) Look(db *bun.DB) func(context.Context) error {
	return func(ctx context.Context) error {
		var one int
		return db.NewRaw(`SELECT 1`).Scan(ctx, &one)
	}
}

// WriteFirst makes sure, where one writer locks the whole database, that a
// transaction begins with a write: one that reads first cannot become a writer
// once somebody else has written.
func (s *Store) WriteFirst(ctx context.Context, tx bun.Tx) error {
	if s.RowLocks() {
		return nil
	}
	if _, err := s.names.Query(ctx, tx, `UPDATE {messages} SET id = id WHERE id < 0`).Exec(ctx); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}
