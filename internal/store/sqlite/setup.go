package sqlite

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

//go:embed migrations
var migrations embed.FS // immutable

func (s *database) Migrating(ctx context.Context, db *bun.DB, fn func(tx bun.IDB) error) error {
	return whileBusy(ctx, func() error { return s.migrateOnce(ctx, db, fn) })
}

// whileBusy retries while the database is locked: the first connections to a new file make it a WAL
// database, which does not wait for busy_timeout.
func whileBusy(ctx context.Context, migrate func() error) error {
	const patience, wait = 5 * time.Second, 20 * time.Millisecond
	deadline := time.Now().Add(patience) // another process's long transaction has had busy_timeout already
	for {
		err := migrate()
		if dberr.SQLiteCode(err) != dberr.SQLiteBusy || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

func (s *database) migrateOnce(ctx context.Context, db *bun.DB, fn func(tx bun.IDB) error) error {
	if _, err := db.NewRaw(s.Expand(`CREATE TABLE IF NOT EXISTS {migrations} (version INTEGER PRIMARY KEY, applied_at TEXT NOT NULL)`)).Exec(ctx); err != nil {
		return fmt.Errorf("create table of migrations: %w", err)
	}
	return db.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error {
		if _, err := tx.NewRaw(s.Expand(`DELETE FROM {migrations} WHERE version < 0`)).Exec(ctx); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		return fn(tx)
	})
}

// Server asks nothing: SQLite has no protocol that another server could speak.
func (s *database) Server(context.Context, bun.IDB) (dialect.Server, error) {
	return dialect.Server{}, nil
}

// Check reads settings back, since SQLite silently ignores a misspelt pragma.
func (s *database) Check(ctx context.Context, db bun.IDB) (dialect.Settings, error) {
	var journal string
	if err := db.NewRaw(`PRAGMA journal_mode`).Scan(ctx, &journal); err != nil {
		return dialect.Settings{}, err
	}
	var wait int64
	if err := db.NewRaw(`PRAGMA busy_timeout`).Scan(ctx, &wait); err != nil {
		return dialect.Settings{}, err
	}
	var mistakes []error
	if handle, ok := db.(*bun.DB); ok && journal == "memory" {
		mistakes = append(mistakes, sharedMemory(ctx, handle))
	}
	if journal != "wal" && journal != "memory" {
		mistakes = append(mistakes, fmt.Errorf("journal_mode %q: WAL is needed: open the database with _pragma=journal_mode(WAL)", journal))
	}
	if wait < 1000 {
		mistakes = append(
			mistakes, fmt.Errorf("busy_timeout %d ms: 1000 or more is needed: open the database with _pragma=busy_timeout(15000)", wait),
		)
	}
	return dialect.Settings{LockWait: time.Duration(wait) * time.Millisecond}, errors.Join(mistakes...)
}

// sharedMemory checks that two connections see the same database in memory. Its name does not show
// that: SQLite reports none even for shared ones. What shows it is whether both have a schema.
func sharedMemory(ctx context.Context, db *bun.DB) error {
	if db.Stats().MaxOpenConnections == 1 {
		return nil
	}
	var empty [2]bool
	for i := range empty {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		var version int64
		if err := conn.NewRaw(`PRAGMA schema_version`).Scan(ctx, &version); err != nil {
			return err
		}
		empty[i] = version == 0
	}
	if empty[0] != empty[1] {
		return errors.New("the database is in memory and not shared, so every connection has its own: use a file, or vfs=memdb")
	}
	return nil
}

// Literals checks nothing: there is one way to write text.
func (s *database) Literals(context.Context, bun.IDB) error { return nil }
