package store

import (
	"context"
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
