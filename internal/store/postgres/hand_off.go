package postgres

import (
	"context"
	"reflect"
	"strings"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/handoff"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// The ids of messages that may be handed off are reserved before, so that no statement has to return
// them: drivers read results by another protocol, which takes the server and the client longer.
//
// A reserved id is unknown to the sequence of another server after a failover, and of another table
// that a search_path leads to: there it would collide with later ones.
const (
	originSQL = `(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint || ':' || '{messages}'::regclass::oid`

	insertAsSQL = `
INSERT INTO {messages} (id, message_id, consumer_type, payload_type, payload, headers, created_at, available_after) OVERRIDING SYSTEM VALUE
SELECT `

	insertFromSQL = `r.message, r.consumer, r.kind, r.payload, NULLIF(r.headers, ''), {now}, {now}
FROM (VALUES «rows») r(id, message, consumer, kind, payload, headers)`
	insertRow = `(?::bigint, ?::uuid, ?::text, ?::text, ?::text, ?::text)`

	// Under ids of another origin these insert nothing.
	insertOneSQL  = insertAsSQL + `?::bigint, ?::uuid, ?::text, ?::text, ?::text, NULLIF(?::text, ''), {now}, {now} WHERE ` + originSQL + ` = ?::text`
	insertRowsSQL = insertAsSQL + `r.id, ` + insertFromSQL + ` WHERE ` + originSQL + ` = ?::text`

	// A role that may insert messages needs no right to their sequence, and may have none.
	messageIDsSQL = `SELECT nextval(s.name) AS id, ` + originSQL + ` AS origin
FROM generate_series(1, ?), pg_get_serial_sequence('{messages}', 'id') s(name) WHERE has_sequence_privilege(s.name, 'USAGE, UPDATE')`
)

// handOffOneSQL writes a claim of a message that its transaction has inserted, and that is due. It
// writes none if the message is missing: a savepoint or a rollback has taken it back, or the function
// of the application has committed it already. The claim and the message become visible to others
// with the same commit. A transaction with an older snapshot could miss a pause.
const handOffOneSQL = handOffClaimSQL + `ARRAY[m.id]
FROM {messages} m WHERE m.id = ?::bigint AND ` + handedOffSQL + ` AND current_setting('transaction_isolation') = 'read committed'`

// handOffSQL does so for several messages, all or none.
const handOffSQL = handOffClaimSQL + `h.ids
FROM (SELECT array_agg(one.id) AS ids
  FROM unnest((SELECT ?::bigint[])) x CROSS JOIN LATERAL (SELECT m.id FROM {messages} m WHERE m.id = x AND ` + handedOffSQL + ` LIMIT 1) one) h
WHERE cardinality(h.ids) = ?::int AND current_setting('transaction_isolation') = 'read committed'`

const (
	handOffClaimSQL = `
INSERT INTO {claims} (id, owner, solo, claimed_at, leased_until, leased_for, message_ids) OVERRIDING SYSTEM VALUE
SELECT ?::bigint, ?::text, false, {now}, {now} + ?::bigint * interval '1 microsecond', ?::bigint, `

	handedOffSQL = `m.xmin = pg_current_xact_id()::xid AND m.available_after <= {now}
    AND NOT EXISTS (SELECT FROM {paused} p WHERE p.consumer_type = m.consumer_type)`
)

// insertHandOffSQL writes rows and their claim in one statement. If a consumer is paused, it writes
// the rows only. Under ids of another origin it fails.
const insertHandOffSQL = `WITH m AS (` + insertAsSQL + `CASE WHEN ` + originSQL + ` = ?::text THEN r.id END, ` + insertFromSQL + `
  RETURNING id, consumer_type)` + handOffClaimSQL + `array_agg(m.id)
FROM m WHERE NOT EXISTS (SELECT FROM {paused} p WHERE p.consumer_type = m.consumer_type) HAVING count(*) = ?::int`

// briefly is sent along with a statement that is not to wait for a lock on the claims: the messages
// are then written without one.
const briefly = "SET LOCAL lock_timeout = '100ms'; "

// withRows returns a statement for n rows.
func withRows(statement string, n int) string {
	return strings.Replace(statement, "«rows»", dialect.Rows(insertRow, n), 1)
}

func rowValues(values []any, rows []dialect.NewMessage, ids handoff.IDs) []any {
	for i, row := range rows {
		values = append(values, ids.IDs[i], row.MessageID, row.ConsumerType, row.PayloadType, row.Payload, row.Headers)
	}
	return values
}

// InsertHandOff implements [dialect.Dialect].
func (p *database) InsertHandOff(
	ctx context.Context, db *bun.DB, rows []dialect.NewMessage, ids handoff.IDs, h dialect.HandOff,
) (claimed bool, err error) {
	lease := h.Lease.Microseconds()
	args := append(rowValues([]any{ids.Origin}, rows, ids), h.Claim(), h.Owner, lease, lease, len(rows))
	if len(rows) > 1 {
		return p.ChangedOne(ctx, db, briefly+withRows(insertHandOffSQL, len(rows)), args...)
	}
	err = p.on(ctx, db, []*fixed{p.insertHandOff}, func(s session) error {
		query := p.Query(ctx, s.IDB, briefly+p.insertHandOff.text, args...)
		if s.planned {
			query = s.NewRaw(briefly+p.insertHandOff.call, args...)
		}
		result, err := query.Exec(ctx)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		claimed = n == 1
		return err
	})
	return claimed, err
}

// HandsOff implements [dialect.Dialect].
func (p *database) HandsOff() bool { return true }

// BeginProducing implements [dialect.Dialect]. A planned statement that is lost would end the
// transaction of the application. So they are used only on connections to the server itself.
func (p *database) BeginProducing(ctx context.Context, db *bun.DB) (dialect.RunTx, error) {
	plan := func(ctx context.Context, conn bun.Conn) (bool, error) {
		if key, err := keyOf(conn); err == nil && p.plans.has(key)[kept] {
			return true, nil
		}
		ok, err := p.plan(ctx, conn, p.producing())
		return ok && p.isServers(ctx, conn) && p.keeps(ctx, conn), err
	}
	begin := func(ctx context.Context, db beginner) (bun.Tx, error) { return txn.BeginCallers(ctx, db) }
	return p.beginPlanned(ctx, db, p.producing(), plan, begin)
}

func (p *database) producing() []*fixed { return []*fixed{p.insertOne, p.handOffOne, p.handOff} }

// What is known of a connection, among the names of its statements.
const (
	serversOwn, another = "(the server's own)", "(a pooler's)"
	usedOnce, kept      = "(used once)", "(keeps its statements)"
)

// keeps reports whether a connection that is used again still has its statements: a pool may reset
// its connections in between.
func (p *database) keeps(ctx context.Context, conn bun.Conn) bool {
	key, err := keyOf(conn)
	if err != nil {
		return false
	}
	has := p.plans.has(key)
	switch {
	case has[kept]:
		return true
	case !has[usedOnce]:
		p.plans.add(key, usedOnce)
		return true
	}
	names := dialect.Each(p.producing(), func(f *fixed) string { return f.name })
	var found int
	err = conn.NewRaw(`SELECT count(*) FROM pg_catalog.pg_prepared_statements WHERE name = ANY(?)`, pgdialect.Array(names)).Scan(ctx, &found)
	if err != nil {
		return false
	}
	if found < len(names) {
		p.plans.off.Store(true)
		return false
	}
	p.plans.add(key, kept)
	return true
}

// isServers reports whether a connection leads to the server rather than to a pooler: the process
// that the server has announced to the driver is the one that answers. It is false for a driver
// other than pgx, whose connections cannot be asked.
func (p *database) isServers(ctx context.Context, conn bun.Conn) bool {
	key, err := keyOf(conn)
	if err != nil {
		return false
	}
	if has := p.plans.has(key); has[serversOwn] || has[another] {
		return has[serversOwn]
	}
	found := another
	var answers uint32
	if err := conn.NewRaw(`SELECT pg_backend_pid()`).Scan(ctx, &answers); err != nil {
		return false
	}
	if announced, ok := announcedPID(key); ok && announced == answers {
		found = serversOwn
	}
	p.plans.add(key, found)
	return found == serversOwn
}

// announcedPID returns the server's process that a *pgx.Conn was told of.
func announcedPID(conn any) (pid uint32, ok bool) {
	method := reflect.ValueOf(conn).MethodByName("PgConn")
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
		return 0, false
	}
	inner, ok := method.Call(nil)[0].Interface().(interface{ PID() uint32 })
	if !ok {
		return 0, false
	}
	return inner.PID(), true
}

// MessageIDs implements [dialect.Dialect].
func (p *database) MessageIDs(ctx context.Context, db bun.IDB, n int) (ids handoff.IDs, err error) {
	var rows []struct {
		ID     int64  `bun:"id"`
		Origin string `bun:"origin"`
	}
	err = p.Query(ctx, db, messageIDsSQL, n).Scan(ctx, &rows)
	for _, row := range rows {
		ids.IDs, ids.Origin = append(ids.IDs, row.ID), row.Origin
	}
	return ids, err
}

// InsertAs implements [dialect.Dialect].
func (p *database) InsertAs(ctx context.Context, tx bun.Tx, rows []dialect.NewMessage, ids handoff.IDs, planned bool) (bool, error) {
	values := append(rowValues(nil, rows, ids), ids.Origin)
	query := p.Query(ctx, tx, withRows(insertRowsSQL, len(rows)), values...)
	if planned && len(rows) == 1 {
		query = tx.NewRaw(p.insertOne.call, values...)
	}
	result, err := query.Exec(ctx)
	if err != nil {
		p.lost(err)
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

// lost has statements sent as text from now on if the application has removed planned ones.
func (p *database) lost(err error) {
	if dberr.IsPlanLost(err) {
		p.plans.off.Store(true)
	}
}

// handOffSavepoint keeps errors of the hand-off from the transaction: a role of the application's may
// not write claims, and a search_path may not lead to them.
const handOffSavepoint = "asyncmonolith_hand_off"

// HandOff implements [dialect.Dialect].
func (p *database) HandOff(ctx context.Context, tx bun.Tx, h dialect.HandOff) (bool, error) {
	const savepoint = "SAVEPOINT " + handOffSavepoint + "; "
	statement, args := p.handOffOne, []any{h.Claim(), h.Owner, h.Lease.Microseconds(), h.Lease.Microseconds(), h.Messages[0]}
	if n := len(h.Messages); n > 1 {
		statement, args = p.handOff, append(args[:4], pgdialect.Array(h.Messages), n)
	}
	query := p.Query(ctx, tx, savepoint+statement.text, args...)
	if h.Planned {
		query = tx.NewRaw(savepoint+statement.call, args...)
	}
	result, err := query.Exec(ctx)
	if err != nil {
		p.lost(err)
		if _, undone := tx.NewRaw("ROLLBACK TO SAVEPOINT " + handOffSavepoint).Exec(ctx); undone != nil {
			return false, nil // the transaction is over or lost: its commit reports that
		}
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 1, err
}
