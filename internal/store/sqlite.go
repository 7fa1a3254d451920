package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// sqlite is the engine for SQLite 3.42 and later.
//
// The protocol is that of postgres, without row locks: the first statement of
// every transaction is a write, which takes the database's only write lock, so
// what follows sees and changes the newest state. Instants are integers:
// microseconds since 1970. Lists of ids are JSON.
type sqlite struct{ returning }

func newSQLite(tables bus.Tables) (engine, error) {
	if tables.Schema != "" {
		return nil, fmt.Errorf("schema %q: SQLite has no schemas, leave Tables.Schema empty", tables.Schema)
	}
	s := new(sqlite)
	s.returning = returning{names: newNames(tables, `"`, sqliteWords()), dialect: s}
	return s, nil
}

func (s *sqlite) name() string { return "sqlite" }

func (s *sqlite) rowLocks() bool { return false }

// readOnlyQuery need not ask: a handler that runs has the one write lock.
func (s *sqlite) readOnlyQuery() string { return "" }

// notification cannot be: other processes are not told of anything.
func (s *sqlite) notification(string, string) (string, []any) { return "", nil }

// sessionColumns has none: a client that vanishes is this process.
func (s *sqlite) sessionColumns(time.Duration) string { return "" }

func sqliteWords() words {
	return words{
		place: "sequence", unplaced: "0", last: "(SELECT COALESCE(MAX(h.sequence), 0) FROM {events} h)", // 0: nothing is looked at
		once: "MATERIALIZED", size: "json_array_length(c.message_ids)", keep: onPaused,
		keyed: "m.insert_id = ?",
	}
}

func (s *sqlite) now(ctx context.Context) string {
	if t, ok := fixed(ctx); ok {
		return s.at(t)
	}
	return "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"
}

func (s *sqlite) after(ctx context.Context, d time.Duration) string {
	return fmt.Sprintf("%s + %d", s.now(ctx), d.Microseconds())
}

func (s *sqlite) at(t time.Time) string { return strconv.FormatInt(t.UnixMicro(), 10) }

func (s *sqlite) raw(ctx context.Context, db bun.IDB, statement string, args ...any) *bun.RawQuery {
	return s.query(db, s.now(ctx), statement, args...)
}

// inTx runs fn in a transaction that holds the write lock from the start.
func (s *sqlite) inTx(ctx context.Context, db bun.IDB, fn func(tx bun.IDB) error) error {
	return db.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error {
		if _, err := s.raw(ctx, tx, sqliteLock).Exec(ctx); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		return fn(tx)
	})
}

// sqliteLock changes nothing, but it is a write: it waits for the write lock as
// long as busy_timeout says. A read first would fail at once instead, when
// another connection has written since.
const sqliteLock = `UPDATE {claims} SET owner = owner WHERE id < 0`

const sqliteHeld = `SELECT j.value AS id FROM {claims} c, json_each(c.message_ids) j`
