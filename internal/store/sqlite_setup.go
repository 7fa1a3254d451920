package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"
)

func (s *sqlite) migrating(ctx context.Context, db *bun.DB, fn func(tx bun.IDB) error) error {
	if _, err := db.NewRaw(s.expand(`CREATE TABLE IF NOT EXISTS {migrations} (version INTEGER PRIMARY KEY, applied_at TEXT NOT NULL)`)).Exec(ctx); err != nil {
		return fmt.Errorf("create table of migrations: %w", err)
	}
	return db.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error {
		if _, err := tx.NewRaw(s.expand(`DELETE FROM {migrations} WHERE version < 0`)).Exec(ctx); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		return fn(tx)
	})
}

// check reads settings back, since SQLite ignores a misspelt pragma in silence.
func (s *sqlite) check(ctx context.Context, db bun.IDB) (Settings, error) {
	var journal string
	if err := db.NewRaw(`PRAGMA journal_mode`).Scan(ctx, &journal); err != nil {
		return Settings{}, err
	}
	var wait int64
	if err := db.NewRaw(`PRAGMA busy_timeout`).Scan(ctx, &wait); err != nil {
		return Settings{}, err
	}
	var file string
	if err := db.NewRaw(`SELECT file FROM pragma_database_list WHERE name = 'main'`).Scan(ctx, &file); err != nil {
		return Settings{}, err
	}
	var mistakes []error
	if journal == "memory" && file == "" {
		mistakes = append(mistakes, errors.New("a database in memory without a name: every connection has one of its own: use a file, or vfs=memdb"))
	}
	if journal != "wal" && journal != "memory" {
		mistakes = append(mistakes, fmt.Errorf("journal_mode %q: WAL is needed: open the database with _pragma=journal_mode(WAL)", journal))
	}
	if wait < 1000 {
		mistakes = append(mistakes, fmt.Errorf("busy_timeout %d ms: 1000 or more is needed: open the database with _pragma=busy_timeout(15000)", wait))
	}
	return Settings{LockWait: time.Duration(wait) * time.Millisecond}, errors.Join(mistakes...)
}
