package store

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// tables is what the statements of every subject need: the dialect of the database and the names
// of its tables.
type tables struct {
	dialect dialect.Dialect
	names   dialect.Names
}

// RowLocks reports whether the database locks rows rather than itself.
func (t *tables) RowLocks() bool { return t.names.RowLocks }

// Now returns the database's time.
func (t *tables) Now(ctx context.Context, db bun.IDB) (time.Time, error) {
	var now dialect.Moment
	err := db.NewRaw("SELECT "+t.names.Now(ctx)+" AS now").Scan(ctx, &now)
	return now.Time, err
}

// WriteFirst makes a transaction begin with a write where one writer locks the whole database. A
// transaction that reads first cannot become a writer once another one has written.
func (t *tables) WriteFirst(ctx context.Context, tx bun.Tx) error {
	if t.RowLocks() {
		return nil
	}
	if err := t.names.Exec(ctx, tx, `UPDATE {messages} SET id = id WHERE id < 0`); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}

// within has the server bound how long a transaction of our own can keep locks, if the server can
// do that.
func (t *tables) within(ctx context.Context, tx bun.Tx, limit time.Duration) error {
	if t.names.Within == "" {
		return nil
	}
	_, err := tx.NewRaw(t.names.Within, fmt.Sprintf("%dms", limit.Milliseconds())).Exec(ctx)
	return err
}
