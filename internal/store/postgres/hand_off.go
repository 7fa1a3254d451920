package postgres

import (
	"context"
	"errors"
	"reflect"
	"strings"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// The ids of messages that may be handed off are reserved before, so that no statement has to return
// them: drivers read results by another protocol, which takes the server and the client longer.
const (
	insertAsSQL = `
INSERT INTO {messages} (id, message_id, consumer_type, payload_type, payload, headers, created_at, available_after) OVERRIDING SYSTEM VALUE VALUES `

	messageIDsSQL = `SELECT nextval(pg_get_serial_sequence('{messages}', 'id')) FROM generate_series(1, ?)`
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
  FROM unnest(?::bigint[]) x CROSS JOIN LATERAL (SELECT m.id FROM {messages} m WHERE m.id = x AND ` + handedOffSQL + ` LIMIT 1) one) h
WHERE cardinality(h.ids) = ?::int AND current_setting('transaction_isolation') = 'read committed'`

const (
	handOffClaimSQL = `
INSERT INTO {claims} (id, owner, solo, claimed_at, leased_until, message_ids) OVERRIDING SYSTEM VALUE
SELECT ?::bigint, ?::text, false, {now}, {now} + ?::bigint * interval '1 microsecond', `

	handedOffSQL = `m.xmin = pg_current_xact_id()::xid AND m.available_after <= {now}
    AND NOT EXISTS (SELECT FROM {paused} p WHERE p.consumer_type = m.consumer_type)`
)

// insertHandOffSQL writes rows and their claim in one statement, unless a consumer is paused: then it
// writes the rows only.
const (
	insertHandOffSQL = `WITH m AS (` + insertAsSQL + `«rows» RETURNING id, consumer_type)` + handOffClaimSQL + `array_agg(m.id)
FROM m WHERE NOT EXISTS (SELECT FROM {paused} p WHERE p.consumer_type = m.consumer_type) HAVING count(*) = ?::int`

	insertAsRow  = `(?::bigint, ?::uuid, ?::text, ?::text, ?::text, NULLIF(?::text, ''), {now}, {now})`
	insertOneSQL = insertAsSQL + insertAsRow
)

// InsertHandOff implements [dialect.Dialect].
func (p *database) InsertHandOff(ctx context.Context, db *bun.DB, rows []dialect.NewMessage, h dialect.HandOff) (claimed bool, err error) {
	var args []any
	for i, row := range rows {
		args = append(args, h.Messages[i], row.MessageID, row.ConsumerType, row.PayloadType, row.Payload, row.Headers)
	}
	args = append(args, h.Claim(), h.Owner, h.Lease.Microseconds(), len(rows))
	if len(rows) > 1 {
		statement := strings.Replace(insertHandOffSQL, "«rows»", dialect.Rows(insertAsRow, len(rows)), 1)
		n, err := p.Changed(ctx, db, statement, args...)
		return n == 1, err
	}
	err = p.on(ctx, db, []*fixed{p.insertHandOff}, func(s session) error {
		result, err := s.run(ctx, p.insertHandOff, args...).Exec(ctx)
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
		ok, err := p.plan(ctx, conn, p.producing())
		return ok && p.isServers(ctx, conn), err
	}
	begin := func(ctx context.Context, db beginner) (bun.Tx, error) { return txn.BeginCallers(ctx, db) }
	return p.beginPlanned(ctx, db, p.producing(), plan, begin)
}

func (p *database) producing() []*fixed { return []*fixed{p.insertOne, p.handOffOne, p.handOff} }

// What is known of a connection, among the names of its statements.
const serversOwn, another = "(the server's own)", "(a pooler's)"

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
func (p *database) MessageIDs(ctx context.Context, db bun.IDB, n int) (ids []int64, err error) {
	err = p.Query(ctx, db, messageIDsSQL, n).Scan(ctx, &ids)
	return ids, err
}

// InsertAs implements [dialect.Dialect].
func (p *database) InsertAs(ctx context.Context, tx bun.Tx, rows []dialect.NewMessage, ids []int64, planned bool) error {
	if row := rows[0]; planned && len(rows) == 1 {
		_, err := tx.NewRaw(p.insertOne.call, ids[0], row.MessageID, row.ConsumerType, row.PayloadType, row.Payload, row.Headers).Exec(ctx)
		if dberr.IsPlanLost(err) { // the application has removed it
			p.plans.off.Store(true)
		}
		return err
	}
	values := make([]any, 0, 6*len(rows))
	for i, row := range rows {
		values = append(values, ids[i], row.MessageID, row.ConsumerType, row.PayloadType, row.Payload, bun.NullZero(row.Headers))
	}
	return p.Exec(ctx, tx, insertAsSQL+dialect.Rows("(?, ?, ?, ?, ?, ?, {now}, {now})", len(rows)), values...)
}

// handOffSavepoint keeps errors of the hand-off from the transaction: a role of the application's may
// not write claims, and a search_path may not lead to them.
const handOffSavepoint = "asyncmonolith_hand_off"

// HandOff implements [dialect.Dialect].
func (p *database) HandOff(ctx context.Context, tx bun.Tx, h dialect.HandOff) (bool, error) {
	const savepoint = "SAVEPOINT " + handOffSavepoint + "; "
	statement, args := p.handOffOne, []any{h.Claim(), h.Owner, h.Lease.Microseconds(), h.Messages[0]}
	if n := len(h.Messages); n > 1 {
		statement, args = p.handOff, append(args[:3], pgdialect.Array(h.Messages), n)
	}
	query := p.Query(ctx, tx, savepoint+statement.text, args...)
	if h.Planned {
		query = tx.NewRaw(savepoint+statement.call, args...)
	}
	result, err := query.Exec(ctx)
	if err != nil {
		_, undone := tx.NewRaw("ROLLBACK TO SAVEPOINT " + handOffSavepoint).Exec(ctx)
		return false, errors.Join(err, undone)
	}
	n, err := result.RowsAffected()
	return n == 1, err
}
