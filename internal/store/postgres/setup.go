package postgres

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"hash/fnv"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

//go:embed migrations
var migrations embed.FS // immutable

// Migrating begins anew when it has lost a deadlock: programs that are at work on the tables lock
// them in an order of their own.
func (p *database) Migrating(ctx context.Context, db *bun.DB, fn func(tx bun.IDB) error) (err error) {
	const tries = 10
	for range tries {
		if err = p.migrating(ctx, db, fn); !dberr.IsConflict(err) {
			break
		}
	}
	return err
}

func (p *database) migrating(ctx context.Context, db *bun.DB, fn func(tx bun.IDB) error) error {
	return db.RunInTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(_ context.Context, tx bun.Tx) error {
		if _, err := tx.NewRaw(`SELECT pg_advisory_xact_lock(?)`, p.advisoryKey()).Exec(ctx); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		if err := p.createSchema(ctx, tx); err != nil {
			return fmt.Errorf("create schema: %w", err)
		}
		if _, err := tx.NewRaw(p.Expand(`CREATE TABLE IF NOT EXISTS {migrations} (version int PRIMARY KEY, applied_at timestamptz NOT NULL)`)).Exec(ctx); err != nil {
			return fmt.Errorf("create table of migrations: %w", err)
		}
		return fn(tx)
	})
}

// createSchema looks for it in the catalog: a connection that has once heard that there
// is no such schema may still believe it, and IF NOT EXISTS with it. Nor is it allowed
// to everybody, even where it has nothing to do.
func (p *database) createSchema(ctx context.Context, tx bun.Tx) error {
	var exists bool
	err := tx.NewRaw(`SELECT ? = '' OR EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = ?)`, p.Schema, p.Schema).Scan(ctx, &exists)
	if err != nil || exists {
		return err
	}
	_, err = tx.NewRaw(`CREATE SCHEMA ?`, bun.Ident(p.Schema)).Exec(ctx)
	return err
}

// advisoryKey is one per schema: sets of tables in it may both want to create it.
func (p *database) advisoryKey() int64 {
	h := fnv.New64a()
	h.Write([]byte("asyncmonolith " + p.Schema))
	return int64(h.Sum64())
}

// withinSQL also has statements interpreted: those for people walk from one name to the next, and
// PostgreSQL would compile them, for longer than they take.
const withinSQL = `SELECT set_config('idle_in_transaction_session_timeout', ?0, true), set_config('statement_timeout', ?0, true), set_config('jit', 'off', true), set_config('enable_bitmapscan', 'off', true)`

func (p *database) Check(ctx context.Context, db bun.IDB) (dialect.Settings, error) {
	var standby bool
	if err := db.NewRaw(`SELECT pg_is_in_recovery()`).Scan(ctx, &standby); err != nil {
		return dialect.Settings{}, err
	}
	if standby {
		return dialect.Settings{}, fmt.Errorf("the database is a standby: connect to the primary")
	}
	return dialect.Settings{RowLocks: true}, p.Literals(ctx, db)
}

// Literals wants what has been the default since PostgreSQL 9.1: with off, a backslash in a
// value would escape the quote that ends it.
func (p *database) Literals(ctx context.Context, db bun.IDB) error {
	var setting string
	if err := db.NewRaw(`SELECT current_setting('standard_conforming_strings')`).Scan(ctx, &setting); err != nil {
		return err
	}
	if setting != "on" {
		return fmt.Errorf("standard_conforming_strings %s: on is needed, or text with a backslash could end its literal: set it back for the server, the database, the role or the DSN, wherever it was changed", setting)
	}
	return nil
}
