package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

//go:embed migrations
var migrations embed.FS // immutable

// Migrating begins anew after a lost deadlock: programs that use the tables lock them in another
// order.
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
	return txn.RunOwn(ctx, db, func(_ context.Context, tx bun.Tx) error {
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

// createSchema looks for the schema in the catalog. A connection that once failed to find it may
// still miss it, and IF NOT EXISTS with it. Also, not every role may run that, even if there is
// nothing to do.
func (p *database) createSchema(ctx context.Context, tx bun.Tx) error {
	var exists bool
	err := tx.NewRaw(`SELECT ? = '' OR EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = ?)`, p.Schema, p.Schema).
		Scan(ctx, &exists)
	if err != nil || exists {
		return err
	}
	_, err = tx.NewRaw(`CREATE SCHEMA ?`, bun.Ident(p.Schema)).Exec(ctx)
	return err
}

// advisoryKey returns one key per schema: several sets of tables in it may want to create it.
func (p *database) advisoryKey() int64 {
	h := fnv.New64a()
	h.Write([]byte("asyncmonolith " + p.Schema))
	return int64(h.Sum64())
}

// withinSQL also turns JIT off: statements for people walk from one name to the next, and
// PostgreSQL would compile them for longer than they take.
const withinSQL = `SELECT set_config('idle_in_transaction_session_timeout', ?0, true), set_config('statement_timeout', ?0, true), set_config('jit', 'off', true), set_config('enable_bitmapscan', 'off', true)`

// Check reads, in one statement, the settings under which the library cannot work.
func (p *database) Check(ctx context.Context, db bun.IDB) (dialect.Settings, error) {
	var rows []struct {
		Name, Setting string
	}
	if err := db.NewRaw(neededSQL).Scan(ctx, &rows); err != nil {
		return dialect.Settings{}, err
	}
	set := make(map[string]string, len(rows))
	for _, row := range rows {
		set[row.Name] = row.Setting
	}
	if set["standby"] == "true" {
		return dialect.Settings{}, fmt.Errorf("the database is a standby: connect to the primary")
	}
	return dialect.Settings{RowLocks: true}, errors.Join(settingMistakes(set)...)
}

const neededSQL = `SELECT 'standby' AS name, pg_is_in_recovery()::text AS setting UNION ALL SELECT name, setting FROM pg_catalog.pg_settings
  WHERE name IN ('standard_conforming_strings', 'DateStyle', 'jit', 'enable_seqscan', 'enable_indexscan', 'enable_nestloop', 'enable_sort', 'jit_above_cost')`

// settingMistakes returns errors for settings under which the library cannot keep its promises.
func settingMistakes(set map[string]string) (mistakes []error) {
	const where = "reset it where it was changed: in the server, the database, the role or the DSN"
	if value := set[literals]; value != "on" {
		mistakes = append(mistakes, literalsMistake(value))
	}
	if value := set["DateStyle"]; !strings.HasPrefix(value, "ISO") {
		mistakes = append(mistakes, fmt.Errorf("DateStyle %q: ISO is needed, or the driver cannot read timestamps: %s", value, where))
	}
	for _, name := range []string{"enable_seqscan", "enable_indexscan", "enable_nestloop", "enable_sort"} {
		if set["jit"] == "on" && set[name] == "off" {
			mistakes = append(
				mistakes,
				fmt.Errorf(
					"%s off with jit on: PostgreSQL would spend seconds compiling the statements that find messages: %s, or set jit to off",
					name, where,
				),
			)
		}
	}
	const least = 1000 // the default is 100,000
	if cost, err := strconv.ParseFloat(set["jit_above_cost"], 64); set["jit"] == "on" && err == nil && cost >= 0 && cost < least {
		mistakes = append(mistakes, fmt.Errorf("jit_above_cost %s with jit on: at least %d is allowed, or PostgreSQL would spend seconds "+
			"compiling the statements that find messages: %s, or set jit to off", set["jit_above_cost"], least, where))
	}
	return mistakes
}

const literals = "standard_conforming_strings"

// Literals requires the default since PostgreSQL 9.1: with off, a backslash in a value would escape
// the quote that ends it.
func (p *database) Literals(ctx context.Context, db bun.IDB) error {
	var setting string
	err := db.NewRaw(`SELECT current_setting('`+literals+`')`).Scan(ctx, &setting)
	if err == nil && setting != "on" {
		err = literalsMistake(setting)
	}
	return err
}

func literalsMistake(setting string) error {
	return fmt.Errorf(
		literals+" %s: on is needed, or text with a backslash could end its literal: reset it where it was changed: in the server, "+
			"the database, the role or the DSN",
		setting,
	)
}
