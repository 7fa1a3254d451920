package postgres

import (
	"sync"
	"time"

	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// database is the dialect for PostgreSQL 13 and later.
//
// A claim is one row in message_claims. Two statements make it: pick locks rows that no claim
// holds, and record writes the claim with its own snapshot, which sees every claim committed since
// pick began. While a claim holds a row lock, no other can pick the row. Once it releases the lock,
// it is visible to every other record. Both halves are needed, and both need READ COMMITTED.
type database struct {
	dialect.Returning
	plans plans

	// The statements of a processor.
	pick, pickCrashed, record, finish, extend *fixed

	polls [3]*fixed // by dialect.PollExtent

	settle map[settling]*fixed

	pickPrior *fixed // by priority

	fenceOne, asBegunOne, removeOne               *fixed // of consumers' transactions
	insertHandOff, insertOne, handOffOne, handOff *fixed // of producers

	// For messages with keys; some differ by the rules of their consumers.
	recordLanes *fixed
	lanes       sync.Map // *fixed by text
}

// New returns the dialect for tables of these names.
func New(tables bus.Tables) (dialect.Dialect, error) {
	p := new(database)
	p.Returning = dialect.Returning{Names: dialect.NewNames(tables, `"`, traits()), Dialect: p}
	p.plans.of = make(map[any]map[string]bool)
	p.pick, p.pickCrashed, p.record = p.fix("pick", pickSQL), p.fix("pick_crashed", pickCrashedSQL), p.fix("record", recordSQL)
	p.finish, p.settle = p.fix("finish", finishSQL), p.settleStatements()
	p.pickPrior = p.fix("pick_prior", pickPriorSQL)
	p.fenceOne, p.asBegunOne, p.removeOne = p.fix("fence", fenceOneSQL), p.fix("as_begun", asBegunOneSQL), p.fix("remove", removeOneSQL)
	p.insertHandOff = p.fix("insert_hand_off", withRows(insertHandOffSQL, 1))
	p.insertOne, p.handOffOne, p.handOff = p.fix("insert", insertOneSQL), p.fix("hand_off_one", handOffOneSQL), p.fix("hand_off", handOffSQL)
	for _, f := range append(p.producing(), p.insertHandOff) {
		f.brief = true
	}
	p.recordLanes = p.fix("record_lanes", recordLanesSQL)
	p.extend = p.fix("extend", extendSQL)
	p.polls = [...]*fixed{p.fix("poll_due", pollDueSQL), p.fix("poll_now", pollNowSQL), p.fix("poll", pollNextSQL)}
	return p, nil
}

func traits() dialect.Traits {
	return dialect.Traits{
		Files: migrations, RowLocks: true, Clock: "statement_timestamp()", Unit: " * interval '1 microsecond'",
		Instant:  func(t time.Time) string { return "'" + timestamp(t) + "'::timestamptz" },
		Micros:   micros,
		ReadOnly: `SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on'`,
		Installed: `SELECT CASE WHEN table_schema = current_schema() THEN '' ELSE table_schema END AS "schema", left(table_name, -length(?0)) AS "prefix"
FROM information_schema.tables WHERE right(table_name, length(?0)) = ?0`,
		Notify: notifySQL, Session: sessionSQL, Within: withinSQL, AsBegun: asBegunSQL, StillBegun: stillBegunSQL,
		Exists: `SELECT id FROM {messages} WHERE id = ? FOR UPDATE`,
		Held:   heldSQL, Holds: `SELECT c.id AS claim_id, u.mid FROM {claims} c CROSS JOIN LATERAL unnest(c.message_ids) u(mid)`,
		Place: "position", Unplaced: "e.position IS NULL", Last: "(SELECT h.position FROM {head} h WHERE h.id = 1)",
		Once: "MATERIALIZED", Size: "cardinality(c.message_ids)", KeepConsumer: dialect.OnConsumer, KeepSlot: dialect.OnSlot,
		Merge: dialect.OnConflict, AsRow: " AS r", Minute: "date_trunc('minute', {now})", KeepNamed: dialect.OnNamed, ShareLock: " FOR KEY SHARE",
		KeyRates: "message_key_rates", KeyOf: "m.order_key, m.lane",
		Instr: "strpos", Lateral: true, Bytes: "octet_length(%s)", GroupOrder: "p.fingerprint", Keyed: "m.insert_id = ?",
		LastRank: "nextval('{ranks}')", Columns: dialect.PickColumns("octet_length(%s)"),
		HeldLanes: `SELECT unnest(c.lanes) AS lane FROM {claims} c WHERE c.consumer_type {names}`, HeldIDs: `SELECT unnest(c.message_ids) FROM {claims} c WHERE c.consumer_type {names}`, Among: "= ANY(?::text[])",
		NameList: func(names []string) any { return pgdialect.Array(names) },
	}
}

func micros(instant string) string { return "(EXTRACT(EPOCH FROM " + instant + ") * 1000000)::bigint" }

func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.999999+00:00") }

func timestampOrEmpty(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return timestamp(t)
}

// preambleSQL bounds how long a lost client can keep locks, and keeps the planner from turning the
// claims subquery into a scan per row.
const preambleSQL = `SELECT set_config('idle_in_transaction_session_timeout', '5s', true), set_config('statement_timeout', '5s', true),
	set_config('work_mem', '16MB', true), set_config('jit', 'off', true)`

// beginSQL begins a transaction with the same settings, and with plans for any values: lists are
// arrays, for which the planner has no statistics anyway.
const beginSQL = `BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '5s'; SET LOCAL statement_timeout = '5s';
	SET LOCAL work_mem = '16MB'; SET LOCAL jit = off; SET LOCAL plan_cache_mode = force_generic_plan`

// beginSharedSQL is for claims that other processes wait for: a process stopped in the middle of
// one blocks them no longer than that.
const beginSharedSQL = beginSQL + `; SET LOCAL idle_in_transaction_session_timeout = '1s'`

// notifySQL does not wait for the disk: a crash that loses a notification also ends the connections
// of its receivers. That also shortens the one lock that all notifying transactions of a server
// hold while they commit.
const notifySQL = `SELECT set_config('synchronous_commit', 'off', true), pg_notify(?, ?)`

// heldSQL has a limit only for the planner: with it the subquery is always hashed. A claim missed
// here costs a wasted pick; recordSQL, the guard, has no limit.
const heldSQL = `SELECT unnest(message_ids) AS id FROM {claims} LIMIT 100000`
