package postgres

import (
	"context"
	"errors"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

const insertOneSQL = `
INSERT INTO {messages} (message_id, consumer_type, payload_type, payload, headers, created_at, available_after)
VALUES (?::uuid, ?::text, ?::text, ?::text, NULLIF(?::text, ''), {now}, {now}) RETURNING id, message_id, consumer_type, created_at`

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

// BeginProducing implements [dialect.Dialect].
func (p *database) BeginProducing(ctx context.Context, db *bun.DB) (dialect.RunTx, error) {
	return p.beginPlanned(ctx, db, []*fixed{p.insertOne, p.handOffOne, p.handOff}, func(ctx context.Context, db beginner) (bun.Tx, error) {
		return db.BeginTx(ctx, nil)
	})
}

// InsertReturning implements [dialect.Dialect].
func (p *database) InsertReturning(
	ctx context.Context, tx bun.Tx, rows []dialect.NewMessage, planned bool,
) (inserted []dialect.Inserted, err error) {
	query := p.insertQuery(ctx, tx, rows, " RETURNING id, message_id, consumer_type, created_at")
	if row := rows[0]; planned && len(rows) == 1 {
		query = tx.NewRaw(p.insertOne.call, row.MessageID, row.ConsumerType, row.PayloadType, row.Payload, row.Headers)
	}
	err = query.Scan(ctx, &inserted)
	return inserted, err
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
