package mariadb

import (
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// database is the dialect for MariaDB 10.6 and later. MySQL 8 understands the same statements, but
// is untested.
//
// The protocol is that of postgres, in more statements, most in one READ COMMITTED transaction,
// since here no statement writes to two tables or returns what it wrote. Each statement of such a
// transaction sees what was committed before it began, and a statement that locks sees the newest
// version of what it locks. What depends on a list of ids is computed in Go, from locked rows.
//
// Rows are locked by primary key, insert ids by that or by their message's, one by one in the order
// of a list: a scan would lock, or wait for, rows that it only passes. STRAIGHT_JOIN and FORCE
// INDEX fix the plan, however few rows there are. Instants are integers: microseconds since 1970.
// Lists of ids are JSON.
type database struct {
	dialect.Names
	dialect.Lists
	dialect.NoHandOff
}

// New returns the dialect for tables of these names.
func New(tables bus.Tables) (dialect.Dialect, error) {
	if tables.Schema != "" {
		return nil, fmt.Errorf(
			"schema %q: a schema of MariaDB is a database, name it when you connect and leave Tables.Schema empty", tables.Schema,
		)
	}
	m := &database{Names: dialect.NewNames(tables, "`", traits())}
	m.Lists = dialect.Lists{SQL: dialect.NewListStatements(statements), Dialect: m}
	return m, nil
}

func traits() dialect.Traits {
	return dialect.Traits{
		Files: migrations, RowLocks: true, Clock: "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))", Instant: dialect.Micros,
		Micros:   dialect.SameMicros,
		ReadOnly: `SELECT CASE WHEN @@global.read_only IN ('0', 'OFF') THEN 0 ELSE 1 END`,
		Installed: `SELECT '' AS "schema", LEFT(table_name, CHAR_LENGTH(table_name) - CHAR_LENGTH(?0)) AS "prefix"
FROM information_schema.tables WHERE table_schema = DATABASE() AND RIGHT(table_name, CHAR_LENGTH(?0)) = ?0`,
		Exists: `SELECT id FROM {messages} WHERE id = ? FOR UPDATE`, IDs: `JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) j STRAIGHT_JOIN`,
		Held: heldSQL, Holds: `SELECT c.id AS claim_id, h.id AS mid FROM ` + idsSQL,
		Place: "sequence", Unplaced: "0", Last: "0", // there are no events
		Once: "", Brief: "max_statement_time", Size: "JSON_LENGTH(c.message_ids)",
		KeepConsumer: "ON DUPLICATE KEY UPDATE consumer_type = consumer_type", Merge: dialect.OnDuplicate,
		Minute: "{now} - {now} % 60000000", KeepSlot: "ON DUPLICATE KEY UPDATE name = name",
		KeepNamed: "ON DUPLICATE KEY UPDATE name = name", ShareLock: " LOCK IN SHARE MODE",

		Lanes: laneTraits(), Columns: dialect.PickColumns("OCTET_LENGTH(%s)"), HeldLanes: heldLanesSQL + `{names}`,
		HeldIDs: `SELECT h.id FROM {claims} c, JSON_TABLE(c.message_ids, '$[*]' COLUMNS (id BIGINT PATH '$')) h WHERE c.consumer_type {names}`,
		KeyOf:   `(SELECT l.order_key FROM {lanes} l WHERE l.id = m.id) AS order_key, (SELECT l.lane FROM {lanes} l WHERE l.id = m.id) AS lane`,
		HasKey:  `m.id IN (SELECT l.id FROM {lanes} l WHERE l.order_key = ?)`,
		Among:   "IN (?)", NameList: func(names []string) any { return bun.List(names) },
		Instr: "INSTR", Bytes: "OCTET_LENGTH(%s)", OneByOne: true, Keys: "pending_insert_ids",
		Keyed: "m.id IN (SELECT id FROM {keys} WHERE insert_id = ?)",
	}
}

const (
	idsSQL  = `{claims} c, JSON_TABLE(c.message_ids, '$[*]' COLUMNS (id BIGINT PATH '$')) h`
	heldSQL = `SELECT h.id FROM ` + idsSQL
)
