package sqlite

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// database is the engine for SQLite 3.42 and later.
//
// The protocol is that of postgres, without row locks: the first statement of
// every transaction is a write, which takes the database's only write lock, so
// what follows sees and changes the newest state. Instants are integers:
// microseconds since 1970. Lists of ids are JSON.
type database struct{ dialect.Returning }

// New returns the dialect for tables of these names.
func New(tables bus.Tables) (dialect.Dialect, error) {
	if tables.Schema != "" {
		return nil, fmt.Errorf("schema %q: SQLite has no schemas, leave Tables.Schema empty", tables.Schema)
	}
	s := new(database)
	s.Returning = dialect.Returning{Names: dialect.NewNames(tables, `"`, fragments()), Dialect: s}
	return s, nil
}

func (s *database) Name() string { return "sqlite" }

func (s *database) RowLocks() bool { return false }

// ReadOnlyQuery need not ask: a handler that runs has the one write lock.
func (s *database) ReadOnlyQuery() string { return "" }

// Notification cannot be: other processes are not told of anything.
func (s *database) Notification(string, string) (string, []any) { return "", nil }

// SessionColumns has none: a client that vanishes is this process.
func (s *database) SessionColumns(time.Duration) string { return "" }

func fragments() dialect.Fragments {
	return dialect.Fragments{
		Place: "sequence", Unplaced: "0", Last: "(SELECT COALESCE(MAX(h.sequence), 0) FROM {events} h)", // 0: nothing is looked at
		Once: "MATERIALIZED", Size: "json_array_length(c.message_ids)", KeepPaused: dialect.OnPaused,
		Keyed: "m.insert_id = ?",
	}
}

func (s *database) Now(ctx context.Context) string {
	if t, ok := dialect.FixedClock(ctx); ok {
		return s.At(t)
	}
	return "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"
}

func (s *database) After(ctx context.Context, d time.Duration) string {
	return fmt.Sprintf("%s + %d", s.Now(ctx), d.Microseconds())
}

func (s *database) At(t time.Time) string { return strconv.FormatInt(t.UnixMicro(), 10) }

func (s *database) Query(ctx context.Context, db bun.IDB, statement string, args ...any) *bun.RawQuery {
	return s.Prepare(db, s.Now(ctx), statement, args...)
}

// inTx runs fn in a transaction that holds the write lock from the start.
func (s *database) inTx(ctx context.Context, db bun.IDB, fn func(tx bun.IDB) error) error {
	return db.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error {
		if _, err := s.Query(ctx, tx, lockSQL).Exec(ctx); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		return fn(tx)
	})
}

// lockSQL changes nothing, but it is a write: it waits for the write lock as
// long as busy_timeout says. A read first would fail at once instead, when
// another connection has written since.
const lockSQL = `UPDATE {claims} SET owner = owner WHERE id < 0`

const heldSQL = `SELECT j.value AS id FROM {claims} c, json_each(c.message_ids) j`
