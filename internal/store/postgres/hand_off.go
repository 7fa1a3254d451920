package postgres

import (
	"context"
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

	// Under ids of another origin it inserts nothing.
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
INSERT INTO {claims} (id, owner, solo, claimed_at, leased_until, message_ids) OVERRIDING SYSTEM VALUE
SELECT ?::bigint, ?::text, false, {now}, {now} + ?::bigint * interval '1 microsecond', `

	handedOffSQL = `m.xmin = pg_current_xact_id()::xid AND m.available_after <= {now}
    AND NOT EXISTS (SELECT FROM {paused} p WHERE p.consumer_type = m.consumer_type)`
)

// insertHandOffSQL writes rows and their claim in one statement. If a consumer is paused, it writes
// the rows only. Under ids of another origin it fails.
const insertHandOffSQL = `WITH m AS (` + insertAsSQL + `CASE WHEN ` + originSQL + ` = ?::text THEN r.id END, ` + insertFromSQL + `
  RETURNING id, consumer_type)` + handOffClaimSQL + `array_agg(m.id)
FROM m WHERE NOT EXISTS (SELECT FROM {paused} p WHERE p.consumer_type = m.consumer_type) HAVING count(*) = ?::int`

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
	args := append(rowValues([]any{ids.Origin}, rows, ids), h.Claim(), h.Owner, h.Lease.Microseconds(), len(rows))
	if len(rows) > 1 {
		return p.ChangedOne(ctx, db, withRows(insertHandOffSQL, len(rows)), args...)
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

// BeginProducing implements [dialect.Dialect].
func (p *database) BeginProducing(ctx context.Context, db *bun.DB) (dialect.RunTx, error) {
	plan := func(ctx context.Context, conn bun.Conn) (bool, error) { return p.plan(ctx, conn, p.producing()) }
	begin := func(ctx context.Context, db beginner) (bun.Tx, error) { return txn.BeginCallers(ctx, db) }
	return p.beginPlanned(ctx, db, p.producing(), plan, begin)
}

func (p *database) producing() []*fixed { return []*fixed{p.handOffOne, p.handOff} }

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

// InsertAs implements [dialect.Dialect]. The statement is sent as text: a planned one that a pooler or
// the application has removed would end the transaction of the application.
func (p *database) InsertAs(ctx context.Context, tx bun.Tx, rows []dialect.NewMessage, ids handoff.IDs) (bool, error) {
	n, err := p.Changed(ctx, tx, withRows(insertRowsSQL, len(rows)), append(rowValues(nil, rows, ids), ids.Origin)...)
	return n > 0, err
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
		if dberr.IsPlanLost(err) {
			p.plans.off.Store(true)
		}
		if _, undone := tx.NewRaw("ROLLBACK TO SAVEPOINT " + handOffSavepoint).Exec(ctx); undone != nil {
			return false, nil // the transaction is over or lost: its commit reports that
		}
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 1, err
}
