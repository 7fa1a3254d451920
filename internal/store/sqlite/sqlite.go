package sqlite

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// database is the dialect for SQLite 3.42 and later.
//
// The protocol is that of postgres, without row locks. The first statement of every transaction is
// a write, which takes the database's only write lock, so later statements see and change the
// newest state. Instants are integers: microseconds since 1970. Lists of ids are JSON.
type database struct {
	dialect.Returning
	dialect.Lists
	dialect.NoHandOff
	turn chan struct{} // of size 1: held by the writer
}

// New returns the dialect for tables of these names.
func New(tables bus.Tables) (dialect.Dialect, error) {
	if tables.Schema != "" {
		return nil, fmt.Errorf("schema %q: SQLite has no schemas, leave Tables.Schema empty", tables.Schema)
	}
	s := &database{turn: make(chan struct{}, 1)}
	s.Lists = dialect.Lists{SQL: dialect.NewListStatements(statements), Dialect: s}
	s.Returning = dialect.Returning{Names: dialect.NewNames(tables, `"`, traits()), Dialect: s}
	return s, nil
}

func traits() dialect.Traits {
	return dialect.Traits{ // not ReadOnly: a running handler has the one write lock
		Files: migrations, Clock: "CAST(unixepoch('subsec') * 1000000 AS INTEGER)", Instant: dialect.Micros, Micros: dialect.SameMicros,
		Installed: `SELECT '' AS "schema", substr(name, 1, length(name) - length(?0)) AS "prefix" FROM sqlite_master WHERE type = 'table' AND substr(name, -length(?0)) = ?0`,
		Exists:    `UPDATE {messages} SET id = id WHERE id = ? RETURNING id`, // waits for the write lock
		Held:      heldSQL, Holds: `SELECT c.id AS claim_id, j.value AS mid FROM {claims} c, json_each(c.message_ids) j`,
		Fence: fencePoint,
		Place: "sequence", Unplaced: "0", Last: "(SELECT COALESCE(MAX(h.sequence), 0) FROM {events} h)", // 0: there is no lookup
		Once: "MATERIALIZED", Size: "json_array_length(c.message_ids)", KeepConsumer: dialect.OnConsumer, KeepSlot: dialect.OnSlot,
		Merge: dialect.OnConflict, AsRow: " AS r", Minute: "{now} - {now} % 60000000", KeepNamed: dialect.OnNamed,
		KeyRates: "message_key_rates", KeyOf: "m.order_key, m.lane",
		Instr: "instr", Bytes: "length(CAST(%s AS BLOB))", Keyed: "m.insert_id = ?", LastRank: "NULL",
		Columns:   dialect.PickColumns("length(CAST(%s AS BLOB))"),
		HeldLanes: `SELECT j.value AS lane FROM {claims} c, json_each(c.lanes) j WHERE c.consumer_type {names}`, HeldIDs: `SELECT j.value FROM {claims} c, json_each(c.message_ids) j WHERE c.consumer_type {names}`, Among: "IN (SELECT value FROM json_each(?))",
		NameList: func(names []string) any { return dialect.AsJSON(names) },
	}
}

// InTx runs fn in a transaction that holds the write lock from the start. Transactions of one
// processor wait for each other here. Otherwise SQLite would have them sleep for increasing times
// and retry.
func (s *database) InTx(ctx context.Context, db bun.IDB, fn func(tx bun.IDB) error) error {
	if _, ours := db.(*bun.DB); ours { // else it may have the lock already
		select {
		case s.turn <- struct{}{}:
			defer func() { <-s.turn }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return db.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error {
		if err := s.Exec(ctx, tx, lockSQL); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		return fn(tx)
	})
}

// lockSQL changes nothing, but as a write it waits for the write lock as long as busy_timeout. A
// transaction that reads first would fail at once when another connection has written since.
const lockSQL = `UPDATE {claims} SET owner = owner WHERE id < 0`

const heldSQL = `SELECT j.value AS id FROM {claims} c, json_each(c.message_ids) j`
